#include "emu/families.h"
namespace tkc::emu {
void register_mbarrier(DecodeTable &) {}
}
