#include "emu/decode.h"
#include "emu/control_flow.h"
#include "emu/families.h"
#include "support/check.h"
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <set>

namespace tkc::emu {

namespace {
const std::unordered_multimap<std::string_view, DecodeEntry> &decode_table() {
  static const std::unordered_multimap<std::string_view, DecodeEntry> table = [] {
    DecodeTable list;
    register_families(list);
    std::unordered_multimap<std::string_view, DecodeEntry> map;
    for (const DecodeEntry &e : list) map.emplace(e.root, e);
    return map;
  }();
  return table;
}

void collect_symbols(const std::vector<PtxOperand> &operands, std::set<std::string_view> &names) {
  for (const PtxOperand &o : operands) {
    if (o.kind == PtxOperand::Kind::Symbol) names.insert(o.name);
    collect_symbols(o.parts, names);
  }
}

int64_t align_up(int64_t x, int64_t align) { return (x + align - 1) / align * align; }
} // namespace

// ---------------------------------------------------------------- modifiers and operands

void Decoder::report(std::string message) {
  if (failed_) return;
  failed_ = true;
  errors_.push_back(
      {inst_ ? inst_->line : function_->line, inst_ ? fmt::format("{}: `{}`", message, inst_->opcode) : message});
}

void Decoder::unsupported() { fail("not in the supported subset"); }

bool Decoder::has(std::string_view modifier) const {
  return std::find(modifiers_.begin(), modifiers_.end(), modifier) != modifiers_.end();
}

bool Decoder::take(std::string_view modifier) {
  auto at = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (at == modifiers_.end()) return false;
  *at = "";
  return true;
}

std::string_view Decoder::take_any(std::initializer_list<std::string_view> modifiers) {
  for (std::string_view m : modifiers)
    if (take(m)) return m;
  return "";
}

std::string_view Decoder::take_first(std::initializer_list<std::string_view> modifiers) {
  for (std::string_view &m : modifiers_) {
    if (m.empty() || std::find(modifiers.begin(), modifiers.end(), m) == modifiers.end()) continue;
    std::string_view found = m;
    m = "";
    return found;
  }
  return "";
}

std::string_view Decoder::take_prefixed(std::string_view prefix) {
  for (std::string_view &m : modifiers_) {
    if (!m.starts_with(prefix)) continue;
    std::string_view found = m;
    m = "";
    return found;
  }
  return "";
}

std::optional<Type> Decoder::maybe_type() {
  for (std::string_view &m : modifiers_) {
    std::optional<Type> t = m.empty() ? std::nullopt : parse_type(m);
    if (t) return m = "", t;
  }
  return std::nullopt;
}

Type Decoder::take_type() {
  std::optional<Type> t = maybe_type();
  if (!t) fail("the type is missing");
  return t.value_or(Type::B32);
}

void Decoder::need_operands(int64_t least, int64_t most) {
  if (operand_count() < least || operand_count() > most) fail("wrong number of operands");
}

const PtxOperand &Decoder::operand(int64_t k) const {
  static const PtxOperand none;
  return k < operand_count() ? inst_->operands[size_t(k)] : none;
}

uint32_t Decoder::new_row(int bytes) {
  uint32_t at = program_.words;
  program_.words += bytes > 8 ? 128 : bytes > 4 ? 64 : 32;
  return at;
}

uint32_t Decoder::register_row(int32_t reg) {
  int64_t &at = rows_[size_t(reg)];
  if (at < 0) {
    Type t = function_->regs[size_t(reg)].type;
    at = t == Type::Pred ? program_.predicates++ : int64_t(new_row(type_bytes(t)));
  }
  return uint32_t(at);
}

int Decoder::register_bits(const PtxOperand &o) const {
  return o.kind == PtxOperand::Kind::Register ? type_bits(register_type(o)) : 0;
}

uint32_t Decoder::constant(uint64_t bits, int bytes) {
  if (bytes < 4) bits &= bytes == 1 ? 0xff : 0xffff;
  int size = bytes <= 4 ? 4 : bytes;
  if (size == 4) bits = uint32_t(bits);
  auto [at, fresh] = constants_.try_emplace({bits, size}, 0);
  if (fresh) {
    at->second = new_row(size);
    program_.constants.push_back({at->second, uint8_t(size), bits, -1});
  }
  return at->second;
}

uint32_t Decoder::source(const PtxOperand &o, Type t, bool wider) {
  int bits = std::max(type_bits(t), 8);
  switch (o.kind) {
  case PtxOperand::Kind::Register: {
    int have = register_bits(o);
    if (have == 1) fail("`{}` is a predicate, a value is needed", o.name);
    if (o.negated) fail("`!` needs a predicate");
    bool fits = have == bits || (wider && have > bits) || (bits == 8 && have == 16);
    if (!fits) fail("`{}` has {} bits, the instruction needs {}", o.name, have, bits);
    return failed_ ? 0 : register_row(o.reg);
  }
  case PtxOperand::Kind::Integer: {
    uint64_t value = o.bits;
    if (t == Type::F32) value = std::bit_cast<uint32_t>(float(int64_t(value)));
    if (t == Type::F64) value = std::bit_cast<uint64_t>(double(int64_t(value)));
    return constant(value, (bits + 7) / 8);
  }
  case PtxOperand::Kind::Float32:
    if (t == Type::F64 || bits == 64)
      return constant(std::bit_cast<uint64_t>(double(std::bit_cast<float>(uint32_t(o.bits)))), 8);
    if (bits != 32) fail("a 32-bit literal where the instruction needs {} bits", bits);
    return constant(o.bits, 4);
  case PtxOperand::Kind::Float64:
    if (bits == 32) return constant(std::bit_cast<uint32_t>(float(std::bit_cast<double>(o.bits))), 4);
    if (bits != 64) fail("a 64-bit literal where the instruction needs {} bits", bits);
    return constant(o.bits, 8);
  case PtxOperand::Kind::Symbol: {
    if (std::optional<Special> s = special_register(o.name)) return special_row(*s, bits <= 32 ? 4 : 8);
    if (o.name == "WARP_SZ") return constant(32, (bits + 7) / 8);
    SymbolAddress a = symbol_address(o);
    if (failed_) return 0;
    if (a.symbol < 0) return constant(a.bits, (bits + 7) / 8);
    if (bits != 64) fail("the address of `{}` needs 64 bits", o.name);
    auto [at, fresh] = symbol_rows_.try_emplace({a.symbol, a.bits}, 0);
    if (fresh) {
      at->second = new_row(8);
      program_.constants.push_back({at->second, 8, a.bits, a.symbol});
    }
    return at->second;
  }
  case PtxOperand::Kind::Vector:
    if (o.parts.size() == 1) return source(o.parts[0], t, wider);
    break;
  case PtxOperand::Kind::Address:
  case PtxOperand::Kind::Pair:
  case PtxOperand::Kind::Arguments:
  case PtxOperand::Kind::Sink: break;
  }
  fail("an operand has the wrong form");
  return 0;
}

uint32_t Decoder::destination(const PtxOperand &o, Type t, bool wider) {
  int bits = std::max(type_bits(t), 8);
  if (o.kind == PtxOperand::Kind::Vector && o.parts.size() == 1) return destination(o.parts[0], t, wider);
  if (o.kind == PtxOperand::Kind::Sink) {
    int bytes = bits > 64 ? 16 : bits > 32 ? 8 : 4;
    auto [at, fresh] = scratch_rows_.try_emplace(bytes, 0);
    if (fresh) at->second = new_row(bytes);
    return at->second;
  }
  if (o.kind != PtxOperand::Kind::Register) return fail("the destination is no register"), 0;
  return source(o, t, wider);
}

int32_t Decoder::predicate(const PtxOperand &o, bool &negated) {
  negated = o.negated;
  if (o.kind == PtxOperand::Kind::Integer) {
    negated = o.bits == 0;
    return 0; // slot 0 is true
  }
  if (o.kind != PtxOperand::Kind::Register || register_type(o) != Type::Pred) return fail("a predicate is needed"), 0;
  return int32_t(register_row(o.reg));
}

int32_t Decoder::predicate_destination(const PtxOperand &o) {
  if (o.kind == PtxOperand::Kind::Sink) {
    if (scratch_predicate_ < 0) scratch_predicate_ = program_.predicates++;
    return scratch_predicate_;
  }
  bool negated = false;
  if (o.kind != PtxOperand::Kind::Register) return fail("a predicate is needed"), 0;
  int32_t slot = predicate(o, negated);
  if (negated) fail("the destination is negated");
  return slot;
}

std::vector<const PtxOperand *> Decoder::elements(int64_t k) const {
  const PtxOperand &o = operand(k);
  std::vector<const PtxOperand *> out;
  if (o.kind != PtxOperand::Kind::Vector) return {&o};
  for (const PtxOperand &p : o.parts) out.push_back(&p);
  return out;
}

uint32_t Decoder::add_list(const std::vector<uint32_t> &rows) {
  uint32_t at = uint32_t(program_.lists.size());
  program_.lists.insert(program_.lists.end(), rows.begin(), rows.end());
  return at;
}

uint32_t Decoder::special_row(Special s, int bytes) {
  auto [at, fresh] = special_rows_.try_emplace({int(s), bytes}, 0);
  if (fresh) {
    at->second = new_row(bytes);
    program_.specials.push_back({at->second, uint8_t(bytes), s});
  }
  return at->second;
}

std::optional<Special> Decoder::special_register(std::string_view name) const {
  static const std::unordered_map<std::string_view, Special> table = {
      {"%tid.x", Special::TidX},
      {"%tid.y", Special::TidY},
      {"%tid.z", Special::TidZ},
      {"%ntid.x", Special::NtidX},
      {"%ntid.y", Special::NtidY},
      {"%ntid.z", Special::NtidZ},
      {"%ctaid.x", Special::CtaidX},
      {"%ctaid.y", Special::CtaidY},
      {"%ctaid.z", Special::CtaidZ},
      {"%nctaid.x", Special::NctaidX},
      {"%nctaid.y", Special::NctaidY},
      {"%nctaid.z", Special::NctaidZ},
      {"%laneid", Special::LaneId},
      {"%warpid", Special::WarpId},
      {"%nwarpid", Special::NwarpId},
      {"%smid", Special::SmId},
      {"%nsmid", Special::NsmId},
      {"%gridid", Special::GridId},
      {"%lanemask_eq", Special::LaneMaskEq},
      {"%lanemask_le", Special::LaneMaskLe},
      {"%lanemask_lt", Special::LaneMaskLt},
      {"%lanemask_ge", Special::LaneMaskGe},
      {"%lanemask_gt", Special::LaneMaskGt},
      {"%clusterid.x", Special::ClusterIdX},
      {"%clusterid.y", Special::ClusterIdY},
      {"%clusterid.z", Special::ClusterIdZ},
      {"%nclusterid.x", Special::NclusterIdX},
      {"%nclusterid.y", Special::NclusterIdY},
      {"%nclusterid.z", Special::NclusterIdZ},
      {"%cluster_ctaid.x", Special::ClusterCtaidX},
      {"%cluster_ctaid.y", Special::ClusterCtaidY},
      {"%cluster_ctaid.z", Special::ClusterCtaidZ},
      {"%cluster_nctaid.x", Special::ClusterNctaidX},
      {"%cluster_nctaid.y", Special::ClusterNctaidY},
      {"%cluster_nctaid.z", Special::ClusterNctaidZ},
      {"%cluster_ctarank", Special::ClusterCtaRank},
      {"%cluster_nctarank", Special::ClusterNctaRank},
      {"%total_smem_size", Special::TotalSharedSize},
      {"%dynamic_smem_size", Special::DynamicSharedSize},
  };
  auto at = table.find(name);
  return at == table.end() ? std::nullopt : std::optional(at->second);
}

// ---------------------------------------------------------------- variables, parameters, addresses

int64_t Decoder::place_local(int64_t bytes, int64_t align) {
  int64_t at = align_up(program_.local_bytes, align);
  program_.local_bytes = align_up(at + bytes, 16);
  return at;
}

const Decoder::FunctionFrame &Decoder::frame(const PtxFunction &f) {
  auto [at, fresh] = frames_.try_emplace(f.name);
  if (fresh) {
    for (const PtxParam &p : f.params) at->second.params.push_back(place_local(p.bytes, p.align));
    for (const PtxParam &p : f.results) at->second.results.push_back(place_local(p.bytes, p.align));
  }
  return at->second;
}

int32_t Decoder::symbol_index(std::string_view name) {
  for (size_t i = 0; i < program_.symbols.size(); i++)
    if (program_.symbols[i] == name) return int32_t(i);
  program_.symbols.emplace_back(name);
  return int32_t(program_.symbols.size()) - 1;
}

Decoder::SymbolAddress Decoder::symbol_address(const PtxOperand &o) {
  uint64_t offset = uint64_t(o.offset);
  for (int32_t scope = inst_->scope; scope >= 0; scope = function_->scope_parent[size_t(scope)]) {
    auto at = local_vars_.find({scope, o.name});
    if (at == local_vars_.end()) continue;
    bool param = std::any_of(function_->vars.begin(), function_->vars.end(), [&](const PtxVar &v) {
      return v.scope == scope && v.name == o.name && v.space == Space::Param;
    });
    return {uint64_t(at->second) + offset, -1, Space::Local, param};
  }
  const std::vector<PtxParam> &params = function_->params, &results = function_->results;
  for (size_t i = 0; i < params.size(); i++) {
    if (params[i].name != o.name) continue;
    if (function_->entry) return {uint64_t(params[i].offset) + offset, -1, Space::Param, false};
    return {uint64_t(frame(*function_).params[i]) + offset, -1, Space::Local, true};
  }
  for (size_t i = 0; i < results.size(); i++)
    if (results[i].name == o.name) return {uint64_t(frame(*function_).results[i]) + offset, -1, Space::Local, true};
  if (auto at = shared_vars_.find(o.name); at != shared_vars_.end())
    return {uint64_t(at->second) + offset, -1, Space::Shared, false};
  for (const PtxVar &v : module_.vars)
    if (v.name == o.name && v.space != Space::Shared) {
      if (v.external) fail("`{}` is .extern and defined nowhere", o.name);
      return {offset, symbol_index(o.name), v.space, false};
    }
  fail("unknown name `{}`", o.name);
  return {};
}

Decoder::Address Decoder::address(const PtxOperand &o, Space space) {
  Address a;
  if (o.kind != PtxOperand::Kind::Address || o.parts.empty()) return fail("an address in brackets is needed"), a;
  const PtxOperand &base = o.parts[0];
  a.offset = o.offset;
  if (base.kind == PtxOperand::Kind::Register) {
    int bits = register_bits(base);
    if (bits != 32 && bits != 64) fail("`{}` cannot be an address", base.name);
    if (bits == 32 && (space == Space::Global || space == Space::Generic || space == Space::Const))
      fail("`{}` has 32 bits, a {} address has 64", base.name, space_name(space));
    a.wide = bits == 64;
    a.row = failed_ ? 0 : register_row(base.reg);
    return a;
  }
  if (base.kind == PtxOperand::Kind::Integer) {
    a.row = constant(base.bits, 8);
    return a;
  }
  if (base.kind != PtxOperand::Kind::Symbol) return fail("an address in brackets is needed"), a;
  PtxOperand plain = base;
  plain.offset = 0;
  SymbolAddress s = symbol_address(plain);
  bool matches = space == s.space || (space == Space::SharedCluster && s.space == Space::Shared) ||
                 (space == Space::Param && s.is_local_param);
  bool global_generic = space == Space::Generic && (s.space == Space::Global || s.space == Space::Const);
  if (!failed_ && !matches && !global_generic)
    fail("`{}` lies in {} memory, the instruction accesses {} memory", base.name, space_name(s.space),
         space_name(space));
  a.is_local_param = s.is_local_param;
  a.row = failed_ ? 0 : source(plain, Type::B64);
  return a;
}

// ---------------------------------------------------------------- functions

const PtxFunction *Decoder::find_function(std::string_view name) const {
  for (const PtxFunction &f : module_.functions)
    if (f.name == name && f.defined && !f.entry) return &f;
  return nullptr;
}

// Shared variables of the kernel and of all functions it reaches, in order of declaration; a gap behind each makes an
// overrun visible. All .extern arrays begin at the same place, behind the others.
void Decoder::place_shared(const PtxFunction &kernel) {
  constexpr int64_t kGap = 64;
  std::vector<const PtxFunction *> reached = {&kernel};
  std::set<std::string_view> names;
  for (size_t i = 0; i < reached.size(); i++) {
    std::set<std::string_view> mine;
    for (const PtxInst &inst : reached[i]->code) collect_symbols(inst.operands, mine);
    for (std::string_view n : mine) {
      const PtxFunction *f = find_function(n);
      if (f && std::find(reached.begin(), reached.end(), f) == reached.end()) reached.push_back(f);
    }
    names.insert(mine.begin(), mine.end());
  }
  std::vector<const PtxVar *> vars;
  for (const PtxVar &v : module_.vars)
    if (v.space == Space::Shared && names.count(v.name)) vars.push_back(&v);
  for (const PtxFunction *f : reached)
    for (const PtxVar &v : f->vars)
      if (v.space == Space::Shared) vars.push_back(&v);
  int64_t next = kSharedStart, dynamic_align = 16;
  for (const PtxVar *v : vars) {
    if (v->external) {
      dynamic_align = std::max(dynamic_align, v->align);
      continue;
    }
    next = align_up(next, std::max<int64_t>(v->align, 16));
    program_.shared.push_back({v->name, next, v->bytes, false});
    shared_vars_[v->name] = next;
    next += v->bytes;
    program_.info.static_shared = align_up(program_.info.static_shared, v->align) + v->bytes;
    next += kGap;
  }
  program_.shared_end = align_up(next, dynamic_align);
  for (const PtxVar *v : vars) {
    if (!v->external) continue;
    program_.shared.push_back({v->name, program_.shared_end, 0, true});
    shared_vars_[v->name] = program_.shared_end;
  }
}

void Decoder::kernel(const PtxFunction &f) {
  KernelInfo &info = program_.info;
  info.name = f.name;
  info.params = f.params;
  if (!f.params.empty()) info.param_bytes = f.params.back().offset + f.params.back().bytes;
  for (int k = 0; k < 3; k++) info.required_threads[k] = f.required_threads[k], info.cluster[k] = f.cluster[k];
  info.max_threads = f.max_threads;
  function_ = &f;
  place_shared(f);
  function(f);
  for (size_t i = 0; i < calls_.size(); i++) {
    auto [pc, callee] = calls_[i];
    if (!entries_.count(callee->name)) function(*callee);
    program_.code[size_t(pc)].target = entries_[callee->name];
  }
  info.instructions = int64_t(program_.code.size());
}

void Decoder::function(const PtxFunction &f) {
  function_ = &f;
  inst_ = nullptr;
  first_pc_ = int32_t(program_.code.size());
  entries_[f.name] = first_pc_;
  rows_.assign(f.regs.size(), -1);
  fixups_.clear();
  local_vars_.clear();
  for (const PtxVar &v : f.vars)
    if (v.space == Space::Local || v.space == Space::Param)
      local_vars_[{v.scope, v.name}] = place_local(v.bytes, v.align);
  for (const PtxInst &inst : f.code) instruction(inst);
  // Control that runs off the end returns.
  PtxInst end;
  end.opcode = "ret";
  end.line = f.code.empty() ? f.line : f.code.back().line;
  instruction(end);
  for (const Fixup &fix : fixups_) {
    int32_t target = find_label(fix.name, fix.scope);
    if (target < 0) {
      errors_.push_back({program_.where[size_t(fix.pc)].line, fmt::format("unknown label `{}`", fix.name)});
      continue;
    }
    target += first_pc_;
    if (fix.table >= 0)
      program_.branch_tables[size_t(fix.table)].push_back(target);
    else
      program_.code[size_t(fix.pc)].target = target;
  }
  if (errors_.empty()) find_meeting_points(program_, first_pc_, int32_t(program_.code.size()), f.entry);
}

int32_t Decoder::find_label(std::string_view name, int32_t scope) const {
  for (; scope >= 0; scope = function_->scope_parent[size_t(scope)])
    for (const PtxLabel &l : function_->labels)
      if (l.scope == scope && l.name == name) return l.target;
  return -1;
}

void Decoder::branch_target(const PtxOperand &o) {
  if (o.kind != PtxOperand::Kind::Symbol) return fail("a label is needed");
  fixups_.push_back({int32_t(program_.code.size()), o.name, inst_->scope, -1});
}

void Decoder::branch_table(const PtxOperand &o) {
  for (int32_t scope = inst_->scope; scope >= 0; scope = function_->scope_parent[size_t(scope)])
    for (const PtxBranchTable &t : function_->tables) {
      if (t.scope != scope || t.name != o.name) continue;
      out.list = uint32_t(program_.branch_tables.size());
      program_.branch_tables.emplace_back();
      for (std::string_view label : t.labels)
        fixups_.push_back({int32_t(program_.code.size()), label, t.scope, int32_t(out.list)});
      return;
    }
  fail("unknown branch table `{}`", o.name);
}

void Decoder::call(const PtxOperand *results, std::string_view name, const PtxOperand *arguments) {
  const PtxFunction *f = find_function(name);
  if (!f) return fail("the function `{}` is not defined in this module", name);
  size_t given = arguments ? arguments->parts.size() : 0, wanted = results ? results->parts.size() : 0;
  if (given != f->params.size() || wanted != f->results.size())
    return fail("`{}` takes {} arguments and returns {}", name, f->params.size(), f->results.size());
  const FunctionFrame &callee = frame(*f);
  out.list = uint32_t(program_.arguments.size());
  out.n = uint8_t(given);
  for (size_t i = 0; i < given; i++) {
    SymbolAddress a = symbol_address(arguments->parts[i]);
    if (!failed_ && !a.is_local_param) fail("argument {} of the call is no .param variable", i);
    program_.arguments.push_back({int32_t(a.bits), int32_t(callee.params[i]), int32_t(f->params[i].bytes)});
  }
  // The results follow the arguments; Warp::ret copies them back.
  for (size_t i = 0; i < wanted; i++) {
    SymbolAddress a = symbol_address(results->parts[i]);
    program_.arguments.push_back({int32_t(callee.results[i]), int32_t(a.bits), int32_t(f->results[i].bytes)});
  }
  out.mode[0] = uint8_t(wanted);
  calls_.push_back({int32_t(program_.code.size()), f});
}

void Decoder::instruction(const PtxInst &inst) {
  inst_ = &inst;
  failed_ = false;
  out = Inst{};
  if (errors_.size() >= 50) return;
  modifiers_.clear();
  std::string_view rest = inst.opcode;
  size_t dot = rest.find('.');
  std::string_view root = rest.substr(0, dot);
  while (dot != rest.npos) {
    rest = rest.substr(dot + 1);
    dot = rest.find('.');
    modifiers_.push_back(rest.substr(0, dot));
  }
  std::optional<Type> first;
  for (std::string_view m : modifiers_)
    if (!first) first = parse_type(m);
  const DecodeEntry *entry = nullptr;
  auto [begin, end] = decode_table().equal_range(root);
  for (auto at = begin; at != end; ++at)
    if (!entry && at->second.accepts(first.value_or(Type::Pred))) entry = &at->second;
  if (!entry) {
    if (begin == end)
      fail("unknown instruction");
    else
      unsupported();
    return;
  }
  if (inst.guard >= 0) {
    out.guard = int32_t(register_row(inst.guard));
    out.guard_negated = inst.guard_negated;
  }
  entry->decode(*this);
  for (std::string_view m : modifiers_)
    if (!m.empty()) fail("modifier `.{}` is not supported here", m);
  if (!failed_) TKC_CHECK(out.run, "no handler for {}", inst.opcode);
  program_.code.push_back(out);
  program_.where.push_back(position());
}

ParseResult parse_ptx(std::string text) {
  static std::atomic<uint64_t> next_id{1};
  auto module = std::make_shared<Module>();
  module->id = next_id++;
  module->ptx.text = std::move(text);
  ParseResult result;
  result.errors = parse_ptx_text(module->ptx);
  if (!result.errors.empty()) return result;
  for (const PtxFunction &f : module->ptx.functions) {
    if (!f.entry || !f.defined) continue;
    module->programs.push_back(std::make_unique<Program>());
    Decoder(module->ptx, *module->programs.back(), result.errors).kernel(f);
  }
  // A function that several kernels call is decoded with each; its errors are told once.
  std::stable_sort(result.errors.begin(), result.errors.end(),
                   [](const PtxDiagnostic &x, const PtxDiagnostic &y) { return x.line < y.line; });
  auto same = [](const PtxDiagnostic &x, const PtxDiagnostic &y) { return x.line == y.line && x.message == y.message; };
  result.errors.erase(std::unique(result.errors.begin(), result.errors.end(), same), result.errors.end());
  if (result.errors.empty()) result.module = std::move(module);
  return result;
}

} // namespace tkc::emu
