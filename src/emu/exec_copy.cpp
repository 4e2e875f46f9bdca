#include "emu/block.h"
#include "emu/families.h"
namespace tkc::emu {
void register_copy(DecodeTable &) {}
bool Async::complete_one(Cluster &) { return false; }
}
