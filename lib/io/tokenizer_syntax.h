// Regular expressions of tokenizer.json, which are Oniguruma's, in the syntax of PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace curvq::io {

// Members of the class of word characters (UTS 18, Annex C, without the join controls): Alphabetic,
// marks, decimal digits, connectors.
inline constexpr std::string_view kWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Members of the class of white space: the property White_Space.
inline constexpr std::string_view kSpaceMembers = R"(\t-\r \x{85}\x{a0}\p{Z})";

// A pattern that matches, compiled by PCRE2 with UTF, UCP, MULTILINE and newline LF, where
// `pattern` matches in Oniguruma. What differs and is translated: \w \W \s \S \d \D \h \H \v \b \B
// \uHHHH, \p{...} of scripts, {,n}, {n,m}+ (there: a repeated repetition; in PCRE2: possessive).
// Groups do not capture. Throws UnsupportedError, naming `where` and the construct, for what has no
// counterpart or is not known to mean the same (back-references, nested classes, POSIX brackets,
// options other than i, ...).
std::string translate_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace curvq::io
