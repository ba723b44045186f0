// What BertNormalizer and BertPreTokenizer take characters for: their properties in Unicode 8.
#pragma once

namespace curvq::io {

bool is_bert_control(char32_t code_point);      // general categories Cc, Cf, Co
bool is_bert_mark(char32_t code_point);         // general category Mn
bool is_bert_punctuation(char32_t code_point);  // ASCII punctuation and general category P
// A word by itself. U+2B820 to U+2B91F are missing there, too.
bool is_bert_ideograph(char32_t code_point);

}  // namespace curvq::io
