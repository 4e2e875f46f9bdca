#include "ir/parse.h"
#include "ir/op_def.h"
#include "support/diag_kinds.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_map>

namespace tkc::ir {

namespace {

constexpr int64_t kMaxDepth = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_word_start(c) || is_digit(c); }

// After the first error the input counts as ended, so every function may go on and returns something harmless.
class Parser {
public:
  Parser(std::string_view text, Diagnostics *diags, int32_t file) : text_(text), diags_(diags), file_(file) {}

  std::unique_ptr<Function> function() {
    f_ = std::make_unique<Function>();
    skip();
    int32_t begin = at();
    if (accept_word("reference"))
      f_->kind = FunctionKind::Reference;
    else
      expect_word("kernel");
    f_->name = name();
    f_->loc = loc(begin);
    expect("{");
    while (!failed_ && !accept_word("body")) header();
    f_->body = f_->new_block(nullptr);
    region(f_->body, 0);
    expect("}");
    skip();
    if (!failed_ && pos_ != text_.size()) fail("text after the end of the function");
    return failed_ ? nullptr : std::move(f_);
  }

  std::optional<SizeExpr> whole_size_expr() {
    SizeExpr e = size_expr();
    skip();
    return failed_ || pos_ != text_.size() ? std::nullopt : std::optional(e);
  }

private:
  // ---- characters and words
  int32_t at() const { return int32_t(pos_); }
  SourceLoc loc(int32_t begin) const { return {file_, begin, std::max(at(), begin)}; }
  void fail(const std::string &what) {
    if (failed_) return;
    failed_ = true;
    int32_t end = std::min(at() + 1, int32_t(text_.size()));
    if (diags_) diags_->report({file_, at(), end}, DiagKind::syntax, what);
    pos_ = text_.size();
  }
  void skip() {
    while (pos_ < text_.size()) {
      if (std::string_view(" \t\r\n").find(text_[pos_]) != std::string_view::npos)
        pos_++;
      else if (text_.substr(pos_, 2) == "//")
        while (pos_ < text_.size() && text_[pos_] != '\n') pos_++;
      else
        return;
    }
  }
  char peek() {
    skip();
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(std::string_view token) {
    skip();
    if (failed_ || text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("expected `{}`", token));
  }
  std::string word() {
    skip();
    size_t end = pos_;
    if (end < text_.size() && is_word_start(text_[end]))
      while (end < text_.size() && is_word(text_[end])) end++;
    if (end == pos_) fail("expected a name");
    std::string out(text_.substr(pos_, end - std::min(end, pos_)));
    if (!failed_) pos_ = end;
    return failed_ ? "" : out;
  }
  bool accept_word(std::string_view w) {
    skip();
    if (failed_ || text_.substr(pos_, w.size()) != w ||
        (pos_ + w.size() < text_.size() && is_word(text_[pos_ + w.size()])))
      return false;
    pos_ += w.size();
    return true;
  }
  void expect_word(std::string_view w) {
    if (!accept_word(w)) fail(fmt::format("expected `{}`", w));
  }
  std::string name() { return peek() == '"' ? string() : word(); }

  std::string string() {
    std::string out;
    expect("\"");
    while (!failed_) {
      if (pos_ >= text_.size() || text_[pos_] == '\n') return fail("the string has no end"), out;
      char c = text_[pos_++];
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      char e = pos_ < text_.size() ? text_[pos_++] : '\0';
      if (e == 'n')
        out += '\n';
      else if (e == 't')
        out += '\t';
      else if (e == 'r')
        out += '\r';
      else if (e == '"' || e == '\\')
        out += e;
      else if (e == 'u' && pos_ + 4 <= text_.size()) {
        std::string hex(text_.substr(pos_, 4));
        char *end = nullptr;
        out += char(std::strtol(hex.c_str(), &end, 16));
        if (*end) fail("bad \\u in a string");
        pos_ += 4;
      } else
        fail("bad escape in a string");
    }
    return out;
  }

  // The text of a number, empty if there is none: -12, 1.5e-05.
  std::string number_text() {
    skip();
    size_t end = pos_;
    if (end < text_.size() && text_[end] == '-') end++;
    size_t digits = end;
    while (
        end < text_.size() &&
        (is_digit(text_[end]) || text_[end] == '.' ||
         (end > digits && (text_[end] == 'e' || ((text_[end] == '-' || text_[end] == '+') && text_[end - 1] == 'e')))))
      end++;
    return end == digits ? "" : std::string(text_.substr(pos_, end - pos_));
  }
  int64_t integer() {
    std::string t = number_text();
    errno = 0;
    char *end = nullptr;
    int64_t v = std::strtoll(t.c_str(), &end, 10);
    if (t.empty() || *end || errno) return fail("expected an integer"), 0;
    pos_ += t.size();
    return v;
  }
  // Up to the parenthesis that closes one already read; none nest in the texts of layouts.
  std::string raw_text() {
    size_t end = text_.find(')', pos_);
    if (end == text_.npos) return fail("expected `)`"), "";
    std::string out(text_.substr(pos_, end - pos_));
    pos_ = end + 1;
    return out;
  }
  // open item, item close
  template <typename F> void list(std::string_view open, std::string_view close, F &&item) {
    expect(open);
    if (accept(close)) return;
    do item();
    while (accept(","));
    expect(close);
  }

  // ---- sizes
  SizeExpr size_expr(int level = 1, int64_t depth = 0) {
    using O = SizeExpr::Op;
    static const std::vector<std::pair<const char *, O>> levels[7] = {
        {},
        {{"||", O::Or}},
        {{"&&", O::And}},
        {{"==", O::Eq}, {"!=", O::Ne}},
        {{"<=", O::Le}, {">=", O::Ge}, {"<", O::Lt}, {">", O::Gt}},
        {{"+", O::Add}, {"-", O::Sub}},
        {{"*", O::Mul}, {"/", O::Div}, {"%", O::Rem}}};
    if (depth > kMaxDepth) return fail("nesting too deep"), SizeExpr();
    if (level == 7) return size_unary(depth + 1);
    SizeExpr e = size_expr(level + 1, depth);
    while (!failed_) {
      const auto *op = static_cast<const std::pair<const char *, O> *>(nullptr);
      for (const auto &o : levels[level])
        if (accept(o.first)) {
          op = &o;
          break;
        }
      if (!op) break;
      e = SizeExpr::make(op->second, e, size_expr(level + 1, depth));
    }
    return e;
  }
  SizeExpr size_unary(int64_t depth) {
    using O = SizeExpr::Op;
    if (accept("!")) return depth > kMaxDepth ? SizeExpr() : SizeExpr::make(O::Not, size_unary(depth + 1), SizeExpr());
    if (accept("(")) {
      SizeExpr e = size_expr(1, depth);
      expect(")");
      return e;
    }
    if (is_digit(peek()) || peek() == '-') return SizeExpr::constant(integer());
    std::string w = word();
    for (auto [text, op] : {std::pair{"cdiv", O::CDiv}, {"min", O::Min}, {"max", O::Max}}) {
      if (w != text || !accept("(")) continue;
      SizeExpr a = size_expr(1, depth);
      expect(",");
      SizeExpr b = size_expr(1, depth);
      expect(")");
      return SizeExpr::make(op, a, b);
    }
    return SizeExpr::symbol(w);
  }

  // ---- types and attributes
  DType dtype() {
    std::string w = word();
    auto t = parse_dtype(w);
    if (!t) fail(fmt::format("`{}` is not a dtype", w));
    return t.value_or(DType::F32);
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> out;
    list("[", "]", [&] { out.push_back(accept("?") ? kDynamic : integer()); });
    return out;
  }
  Type type() {
    if (accept_word("token")) return Type::token();
    if (accept_word("none")) return {};
    bool tile = accept_word("tile");
    if (!tile && !accept_word("tensor")) return Type::scalar(dtype());
    expect("<");
    DType t = dtype();
    expect(">");
    std::vector<int64_t> s = shape();
    return tile ? Type::tile(t, s) : Type::tensor(t, s);
  }
  RegLayout reg_layout(const std::string &text, const std::vector<int64_t> &shape) {
    auto l = RegLayout::parse(text, shape);
    if (!l) fail(fmt::format("`{}` is not a layout of shape {}", text, shape_str(shape)));
    return l.value_or(RegLayout());
  }
  Attr attr() {
    char c = peek();
    if (c == '"') return string();
    if (c == '[') {
      pos_++;
      if (accept("]")) return std::vector<int64_t>();
      pos_--;
      size_t open = pos_++;
      bool strings = peek() == '"';
      pos_ = open;
      std::vector<std::string> words;
      std::vector<int64_t> ints;
      list("[", "]", [&] { strings ? words.push_back(string()) : ints.push_back(integer()); });
      return strings ? Attr(words) : Attr(ints);
    }
    if (accept_word("nan")) return std::numeric_limits<double>::quiet_NaN();
    if (accept_word("inf")) return std::numeric_limits<double>::infinity();
    if (accept("-inf")) return -std::numeric_limits<double>::infinity();
    if (is_digit(c) || c == '-') {
      std::string t = number_text();
      if (t.find_first_of(".e") == t.npos) return integer();
      char *end = nullptr;
      double v = std::strtod(t.c_str(), &end);
      if (*end)
        fail(fmt::format("`{}` is not a number", t));
      else
        pos_ += t.size();
      return v;
    }
    if (accept_word("strings")) {
      expect("[");
      expect("]");
      return std::vector<std::string>();
    }
    if (accept_word("reg_layout")) {
      std::vector<int64_t> s = shape();
      expect("(");
      return reg_layout(raw_text(), s);
    }
    if (accept_word("smem_layout")) {
      std::vector<int64_t> s = shape();
      expect("(");
      int64_t elem = integer();
      expect(",");
      int64_t bytes = integer();
      expect(",");
      int64_t alignment = integer();
      expect(",");
      skip();
      std::string text = raw_text();
      auto l = failed_ ? std::nullopt : SmemLayout::parse(text, s, elem);
      if (!l)
        return fail(fmt::format("`{}` is not a shared-memory layout of shape {}", text, shape_str(s))), SmemLayout();
      l->bytes = bytes;
      l->alignment = alignment;
      return *l;
    }
    return dtype();
  }

  // ---- the header
  void header() {
    if (accept_word("param")) return param();
    if (accept_word("size")) return f_->sizes.push_back(name());
    if (accept_word("bind")) {
      std::string n = name();
      expect("=");
      return f_->bindings.emplace_back(n, string()), void();
    }
    if (accept_word("grid")) return list("(", ")", [&] { f_->grid.push_back(size_expr()); });
    if (accept_word("order")) {
      f_->order = name();
      return list("(", ")", [&] { f_->order_args.push_back(integer()); });
    }
    if (accept_word("persistent")) {
      f_->persistent = true;
      return attrs(f_->tile_annotations);
    }
    if (accept_word("overlaps")) return void(f_->overlaps = true);
    if (accept_word("warps")) return void(f_->warps = integer());
    if (accept_word("where")) {
      skip();
      int32_t begin = at();
      f_->facts.push_back(size_expr());
      f_->fact_locs.push_back(loc(begin));
      return;
    }
    if (accept_word("result")) return f_->result_names.push_back(name());
    if (accept_word("shared")) return void(f_->shared_bytes = integer());
    fail("expected `param`, `size`, `bind`, `grid`, `order`, `persistent`, `overlaps`, `warps`, `where`, `result`, "
         "`shared` or `body`");
  }
  void param() {
    skip();
    int32_t begin = at();
    Param p;
    p.name = name();
    p.loc = loc(begin);
    expect(":");
    p.mode = accept_word("out") ? ParamMode::Out : accept_word("inout") ? ParamMode::InOut : ParamMode::In;
    if (p.mode == ParamMode::In) expect_word("in");
    p.type = type();
    if (accept_word("dims")) list("[", "]", [&] { p.dims.push_back(size_expr()); });
    if (accept_word("strides")) {
      expect("(");
      expect_word("any");
      expect(")");
      p.any_strides = true;
    }
    p.optional = accept_word("optional");
    p.present = !accept_word("absent");
    if (accept_word("record")) {
      Record r;
      r.name = string();
      if (peek() == '<') list("<", ">", [&] { r.args.push_back(string()); });
      list("{", "}", [&] {
        RecordField f;
        f.name = this->name();
        expect(":");
        f.dtype = dtype();
        f.shape = shape();
        if (!failed_ &&
            (f.shape.empty() || std::any_of(f.shape.begin(), f.shape.end(), [](int64_t n) { return n < 1; })))
          fail("a field of a record has dims of at least 1");
        r.fields.push_back(std::move(f));
      });
      if (!failed_) p.record = std::make_shared<Record>(lay_out_record(std::move(r)));
    }
    f_->params.push_back(std::move(p));
  }

  // ---- values and ops
  // `%acc.1` as written; with the hint `acc`. Numbered values have no hint.
  std::string value_name() {
    expect("%");
    size_t end = pos_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.')) end++;
    if (end == pos_) fail("expected a value");
    std::string out(text_.substr(pos_, end - std::min(end, pos_)));
    if (!failed_) pos_ = end;
    return out;
  }
  void define(const std::string &name, Value *v) {
    if (failed_) return;
    if (!is_digit(name[0])) v->name = name.substr(0, name.find('.'));
    if (!values_.emplace(name, v).second) fail(fmt::format("%{} is defined twice", name));
  }
  Value *use() {
    skip();
    int32_t begin = at();
    std::string n = value_name();
    auto it = values_.find(n);
    if (it != values_.end()) return it->second;
    if (!failed_) pos_ = size_t(begin);
    fail(fmt::format("%{} is not defined", n));
    return nullptr;
  }

  // [(args)] { ops }
  void region(Block *b, int64_t depth) {
    if (depth > kMaxDepth) return fail("nesting too deep");
    if (peek() == '(')
      list("(", ")", [&] {
        std::string n = value_name();
        expect(":");
        Value *v = f_->new_value(type());
        v->block = b;
        v->index = int64_t(b->args.size());
        b->args.push_back(v);
        define(n, v);
        if (accept_word("layout")) {
          expect("(");
          v->layout = reg_layout(raw_text(), v->type.shape);
        }
      });
    expect("{");
    while (!failed_ && !accept("}")) op(b, depth);
  }

  void attrs(Attrs &out) {
    if (peek() != '{') return;
    list("{", "}", [&] {
      std::string key = name();
      expect("=");
      out.set(key, attr());
    });
  }

  void op(Block *b, int64_t depth) {
    skip();
    int32_t begin = at();
    std::vector<std::string> names;
    if (peek() == '%') {
      do names.push_back(value_name());
      while (accept(","));
      expect("=");
    }
    skip();
    int32_t kind_at = at();
    std::string kind_name = word();
    auto kind = find_op(kind_name);
    if (!kind) {
      if (!failed_) pos_ = size_t(kind_at);
      return fail(fmt::format("there is no op `{}`", kind_name));
    }
    Op *op = f_->new_op(*kind, {});
    op->block = b;
    b->ops.push_back(op);
    if (peek() == '%') do
        op->operands.push_back(use());
      while (accept(","));
    if (!names.empty()) {
      expect(":");
      do {
        Value *v = f_->new_value(type());
        v->op = op;
        v->index = int64_t(op->results.size());
        op->results.push_back(v);
      } while (accept(","));
      if (op->results.size() != names.size())
        fail(fmt::format("{} results and {} types", names.size(), op->results.size()));
    }
    attrs(op->attrs);
    if (accept_word("layout")) {
      expect("(");
      layouts(*op, raw_text());
    }
    op->loc = loc(begin);
    if (accept_word("loc")) {
      std::vector<int64_t> n;
      list("(", ")", [&] { n.push_back(integer()); });
      if (n.size() != 3) return fail("expected loc(file, begin, end)");
      op->loc = {int32_t(n[0]), int32_t(n[1]), int32_t(n[2])};
    }
    while (accept_word("do")) {
      Block *r = f_->new_block(op);
      op->regions.push_back(r);
      region(r, depth + 1);
    }
    // After the regions, which do not see the results.
    for (size_t i = 0; i < names.size() && !failed_; i++) define(names[i], op->results[i]);
  }

  // `l0; l1; none`, one for each result.
  void layouts(Op &op, std::string text) {
    for (Value *v : op.results) {
      size_t end = std::min(text.find(';'), text.size());
      std::string one = text.substr(0, end);
      one.erase(0, std::min(one.find_first_not_of(' '), one.size()));
      if (one != "none") v->layout = reg_layout(one, v->type.shape);
      text.erase(0, std::min(end + 1, text.size()));
    }
    if (!text.empty()) fail("more layouts than results");
  }

  std::string_view text_;
  Diagnostics *diags_;
  int32_t file_;
  size_t pos_ = 0;
  bool failed_ = false;
  std::unique_ptr<Function> f_;
  std::unordered_map<std::string, Value *> values_;
};

} // namespace

std::unique_ptr<Function> parse_ir(std::string_view text, Diagnostics &diags, int32_t file_id) {
  return Parser(text, &diags, file_id).function();
}

std::optional<SizeExpr> parse_size_expr(std::string_view text) { return Parser(text, nullptr, -1).whole_size_expr(); }

} // namespace tkc::ir
