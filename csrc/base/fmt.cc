// SPDX-License-Identifier: Apache-2.0
//
// The compiled part of fmt, once for the library: header-only use would compile it in every file
// (about 4 s each), and linking Debian's shared libfmt would tie a wheel to it.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl(locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
