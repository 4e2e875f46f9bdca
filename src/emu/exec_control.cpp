// Control flow: bra, brx.idx, call, ret, exit, trap, brkpt, nanosleep, griddepcontrol; the system functions vprintf and
// __assertfail.
#include "emu/access.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include <cstring>

namespace tkc::emu {

namespace {
void branch(Warp &w, const Inst &i, uint32_t mask) { w.branch(mask, i.target, i.reconverge); }

void branch_indexed(Warp &w, const Inst &i, uint32_t mask) {
  const std::vector<int32_t> &table = w.block->grid.program.branch_tables[i.list];
  const uint32_t *index = w.row<uint32_t>(i.a);
  uint32_t targets[32];
  for (int lane = 0; lane < 32; lane++) targets[lane] = uint32_t(w.pc);
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    if (index[lane] >= table.size()) {
      w.error(ErrorKind::OutOfBounds, lane, 0,
              fmt::format("index {} into a branch table of {} labels", index[lane], table.size()));
      return;
    }
    targets[lane] = uint32_t(table[index[lane]]);
  }
  w.multiway_branch(targets, w.active, i.reconverge);
}

void call(Warp &w, const Inst &i, uint32_t mask) {
  const Program &p = w.block->grid.program;
  for (int32_t f = w.frame; f >= 0; f = w.frames[size_t(f)].parent)
    if (p.code[size_t(w.frames[size_t(f)].return_pc - 1)].target == i.target)
      return w.error(ErrorKind::Unsupported, first_lane(mask), 0, "recursive calls are not supported");
  each_lane(mask, [&](int lane) {
    uint8_t *local = w.local + lane * p.local_bytes;
    for (int k = 0; k < i.n; k++) {
      const CallArgument &a = p.arguments[i.list + size_t(k)];
      std::memcpy(local + a.to, local + a.from, size_t(a.bytes));
    }
  });
  w.call(i.target, mask);
}
void ret(Warp &w, const Inst &, uint32_t mask) { w.ret(mask); }
void exit(Warp &w, const Inst &, uint32_t mask) { w.exit(mask); }
void trap(Warp &w, const Inst &, uint32_t mask) { w.error(ErrorKind::Trap, first_lane(mask), 0, "trap"); }
void nothing(Warp &, const Inst &, uint32_t) {}

// ---- vprintf(format, arguments), __assertfail(message, file, line, function, size of a char).
// list: local addresses of the .param variables; d: that of the result.
std::string read_string(Warp &w, int lane, uint64_t address) {
  std::string s;
  while (s.size() < 4096) {
    Place p = find_place(w, lane, Space::Generic, address + s.size(), 1, 1, Use::Read);
    if (!p.bytes || !*p.bytes) break;
    s += char(*p.bytes);
  }
  return s;
}
template <typename T> T local_value(Warp &w, int lane, uint32_t address) {
  T x;
  std::memcpy(&x, w.local + lane * w.block->grid.program.local_bytes + address, sizeof x);
  return x;
}
// The host's printf for one conversion; the argument has the size that device varargs have.
std::string format_one(Warp &w, int lane, const std::string &spec, uint64_t &at) {
  char letter = spec.back();
  if (letter == '%') return "%";
  bool wide = spec.find("ll") != spec.npos || spec.find('l') != spec.npos || spec.find('z') != spec.npos ||
              letter == 'p' || letter == 's';
  bool is_float = std::string_view("aAeEfFgG").find(letter) != std::string_view::npos;
  uint64_t size = wide || is_float ? 8 : 4;
  at = (at + size - 1) / size * size;
  Place p = find_place(w, lane, Space::Generic, at, int64_t(size), 4, Use::Read);
  if (!p.bytes) return "";
  uint64_t bits = 0;
  std::memcpy(&bits, p.bytes, size);
  at += size;
  std::string plain;
  for (char c : spec)
    if (c != 'l' && c != 'h' && c != 'z' && c != 'j' && c != 't') plain += c;
  char text[512];
  if (is_float) {
    std::snprintf(text, sizeof text, plain.c_str(), std::bit_cast<double>(bits));
  } else if (letter == 's') {
    return read_string(w, lane, bits);
  } else if (letter == 'p') {
    return fmt::format("{:#x}", bits);
  } else if (std::string_view("diouxXc").find(letter) != std::string_view::npos) {
    if (letter != 'c') plain.insert(plain.size() - 1, "ll");
    long long value = wide                             ? (long long)bits
                      : letter == 'd' || letter == 'i' ? int32_t(bits)
                                                       : (long long)uint32_t(bits);
    if (letter == 'c')
      std::snprintf(text, sizeof text, plain.c_str(), int(value));
    else
      std::snprintf(text, sizeof text, plain.c_str(), value);
  } else {
    return spec;
  }
  return text;
}
void vprintf(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *args = w.block->grid.program.lists.data() + i.list;
  each_lane(mask, [&](int lane) {
    std::string format = read_string(w, lane, local_value<uint64_t>(w, lane, args[0])), out;
    uint64_t at = local_value<uint64_t>(w, lane, args[1]);
    int32_t count = 0;
    for (size_t k = 0; k < format.size(); k++) {
      if (format[k] != '%') {
        out += format[k];
        continue;
      }
      size_t end = format.find_first_not_of("%-+ #0123456789.*hlzjt", k + 1);
      if (format.compare(k, 2, "%%") == 0) end = k + 1;
      if (end == format.npos) break;
      std::string spec = format.substr(k, end - k + 1);
      // A width or precision of `*` is an argument too.
      for (size_t star; (star = spec.find('*')) != spec.npos;) spec.replace(star, 1, format_one(w, lane, "%d", at));
      out += format_one(w, lane, spec, at);
      count++;
      k = end;
    }
    w.block->printed += out;
    if (i.mode[0]) std::memcpy(w.local + lane * w.block->grid.program.local_bytes + i.d, &count, 4);
  });
}
void assert_fail(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *args = w.block->grid.program.lists.data() + i.list;
  int lane = first_lane(mask);
  auto text = [&](int k) { return read_string(w, lane, local_value<uint64_t>(w, lane, args[k])); };
  std::string file = text(1), function = text(3);
  w.error(ErrorKind::Assert, lane, 0,
          fmt::format("assertion `{}` failed at {}:{} in {}", text(0), file, local_value<uint32_t>(w, lane, args[2]),
                      function));
}

// ---- decoding
void decode_bra(Decoder &d) {
  d.take("uni");
  d.need_operands(1);
  d.branch_target(d.operand(0));
  d.out.flow = Flow::Branch;
  d.out.run = branch;
}
void decode_brx(Decoder &d) {
  if (!d.take("idx")) return d.unsupported();
  d.take("uni");
  d.need_operands(2);
  d.out.a = d.source(0, Type::B32);
  d.branch_table(d.operand(1));
  d.out.flow = Flow::Table;
  d.out.run = branch_indexed;
}
void decode_call(Decoder &d) {
  d.take("uni");
  const PtxOperand *results = nullptr, *arguments = nullptr;
  std::string_view name;
  for (int64_t k = 0; k < d.operand_count(); k++) {
    const PtxOperand &o = d.operand(k);
    if (o.kind == PtxOperand::Kind::Symbol && name.empty())
      name = o.name;
    else if (o.kind == PtxOperand::Kind::Arguments && name.empty() && !results)
      results = &o;
    else if (o.kind == PtxOperand::Kind::Arguments && !name.empty() && !arguments)
      arguments = &o;
    else
      return d.unsupported(); // an indirect call
  }
  if (name != "vprintf" && name != "__assertfail") {
    d.call(results, name, arguments);
    d.out.run = call;
    return;
  }
  bool print = name == "vprintf";
  size_t wanted = print ? 2 : 5;
  if (!arguments || arguments->parts.size() != wanted) return d.fail("wrong number of arguments of {}", name);
  std::vector<uint32_t> addresses;
  for (const PtxOperand &o : arguments->parts) addresses.push_back(uint32_t(d.symbol_address(o).bits));
  d.out.list = d.add_list(addresses);
  if (results && results->parts.size() == 1)
    d.out.mode[0] = 1, d.out.d = uint32_t(d.symbol_address(results->parts[0]).bits);
  d.out.run = print ? vprintf : assert_fail;
  if (!print) d.out.flow = Flow::Exit;
}
void decode_end(Decoder &d, Handler run, Flow flow) {
  d.take("uni");
  d.need_operands(0);
  d.out.flow = flow;
  d.out.run = run;
}
void decode_nanosleep(Decoder &d) {
  d.take_type();
  d.need_operands(1);
  d.source(0, Type::U32);
  d.out.run = nothing;
}
void decode_griddepcontrol(Decoder &d) {
  bool waits = d.take("wait");
  if (!waits && !d.take("launch_dependents")) d.fail("one of .launch_dependents, .wait is missing");
  d.need_operands(0);
  // One grid runs at a time, so a wait is over at once; what must not come before it is checked.
  d.out.run = nothing;
  if (waits) d.out.run = [](Warp &w, const Inst &, uint32_t mask) { w.waited |= mask; };
}
// Register limits are no part of the meaning.
void decode_setmaxnreg(Decoder &d) {
  d.take_any({"inc", "dec"}), d.take("sync"), d.take("aligned"), d.take_type();
  d.need_operands(1);
  d.out.run = [](Warp &w, const Inst &, uint32_t mask) { w.converged(mask, false); };
}
} // namespace

void register_control(DecodeTable &t) {
  t.insert(t.end(), {
                        {"bra", decode_bra, any_type},
                        {"brx", decode_brx, any_type},
                        {"call", decode_call, any_type},
                        {"ret", [](Decoder &d) { decode_end(d, ret, Flow::Return); }, any_type},
                        {"exit", [](Decoder &d) { decode_end(d, exit, Flow::Exit); }, any_type},
                        {"trap", [](Decoder &d) { decode_end(d, trap, Flow::Exit); }, any_type},
                        {"brkpt", [](Decoder &d) { decode_end(d, nothing, Flow::Next); }, any_type},
                        {"nanosleep", decode_nanosleep, any_type},
                        {"griddepcontrol", decode_griddepcontrol, any_type},
                        {"setmaxnreg", decode_setmaxnreg, any_type},
                    });
}

} // namespace tkc::emu
