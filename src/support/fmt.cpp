// fmt's library, compiled once into this program: Debian packs it shared only, and header-only use makes every file of
// ours compile it again, which doubles the time of a build.
#include <fmt/format-inl.h>

// What fmt's headers declare as compiled elsewhere.
FMT_BEGIN_NAMESPACE
namespace detail {
template void buffer<char>::append(const char *, const char *);
template void vformat_to(buffer<char> &, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
} // namespace detail
FMT_END_NAMESPACE
