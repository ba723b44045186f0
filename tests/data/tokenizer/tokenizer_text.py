"""The lines that the tokenizer tests encode: many scripts, odd spaces, code, and look-alikes of special tokens."""

PROSE = """\
The harbour was quiet before the ferry came in, and nobody had yet opened the kiosk.
She counted the crates twice: 17 of apples, 4 of pears, and 1 that nobody could name.
It's what they'd said we'll do; I'm sure you've heard they're late, isn't it?
IT'S WHAT THEY'D SAID; I'M SURE YOU'VE HEARD THEY'RE LATE
A longer sentence, with commas, semicolons; colons: and - of course - dashes \u2014 ends here...
"Quoted text," he wrote, 'and more of it', with \u201ccurly quotes\u201d and \u2018single ones\u2019 too.
Prices rose from $1,299.00 to \u20ac1.350,50 (that is 12.5% more) within 365 days.
1234567890 12 345 6 7890 3.14159265358979 1e-9 0xDEADBEEF 2^64 = 18446744073709551616
The international organisation of understandable internationalisation is unquestionably multidisciplinary.
Le gar\u00e7on na\u00eff mangea une cr\u00eape br\u00fbl\u00e9e \u00e0 No\u00ebl, pr\u00e8s de l\u2019\u0153uvre d\u2019\u00c9mile.
Le gar\u0063\u0327on nai\u0308f mangea une cre\u0302pe bru\u0302le\u0301e a\u0300 Noe\u0308l.
Gr\u00fc\u00dfe aus K\u00f6ln: \u00dcberma\u00df, \u00c4rger, \u00d6l und die Stra\u00dfe; STRASSE, \u1e9e.
El ni\u00f1o pregunt\u00f3: \u00bfd\u00f3nde est\u00e1 el ping\u00fcino? \u00a1Aqu\u00ed!
P\u0159\u00edli\u0161 \u017elu\u0165ou\u010dk\u00fd k\u016f\u0148 \u00fap\u011bl \u010f\u00e1belsk\u00e9 \u00f3dy.
Za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144, pchn\u0105\u0107 w t\u0119 \u0142\u00f3d\u017a je\u017ca.
\u0130stanbul'da \u0131l\u0131k bir \u00f6\u011fleden sonra; DI\u015eARIDA \u00c7OK I\u015eIK VAR.
Ti\u1ebfng Vi\u1ec7t c\u00f3 nhi\u1ec1u d\u1ea5u: \u1eaf \u1eb1 \u1eb3 \u1eb5 \u1eb7, \u01b0\u1edbc m\u01a1.
Tie\u0302\u0301ng Vie\u0323\u0302t vie\u0302\u0301t ra\u0300nh ra\u0323ch, tu\u031b\u0300ng da\u0302\u0301u mo\u0323\u0302t.
\u0423\u0442\u0440\u043e\u043c \u0432 \u0433\u0430\u0432\u0430\u043d\u0438 \u0431\u044b\u043b\u043e \u0442\u0438\u0445\u043e; \u0434\u0435\u0442\u0438 \u043b\u043e\u0432\u0438\u043b\u0438 \u0440\u044b\u0431\u0443 \u0438 \u0441\u0447\u0438\u0442\u0430\u043b\u0438 \u0447\u0430\u0435\u043a: 1, 2, 3.
\u0407\u0436\u0430\u043a \u0457\u0441\u0442\u044c \u0433\u0440\u0443\u0448\u0443 \u0491\u0440\u0443\u043d\u0442; \u0419\u043e\u0433\u043e \u0438\u0306 \u0456 \u0435\u0308.
\u0394\u03b5\u03bd \u03ad\u03c7\u03b5\u03b9 \u03c3\u03ae\u03bc\u03b5\u03c1\u03b1 \u03ba\u03cd\u03bc\u03b1\u03c4\u03b1, \u03b5\u03af\u03c0\u03b5 \u03bf \u03c8\u03b1\u03c1\u03ac\u03c2. \u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3
\u1f08\u03c1\u03c7\u1f74 \u1f25\u03bc\u03b9\u03c3\u03c5 \u03c0\u03b1\u03bd\u03c4\u03cc\u03c2 \u1fb3 \u1fa7 \u1f85 \u0391\u0345
\u4eca\u5929\u6e2f\u53e3\u5f88\u5b89\u9759\uff0c\u6e21\u8f6e\u8fd8\u6ca1\u6709\u5230\u3002\u4ed6\u6570\u4e8617\u4e2a\u7bb1\u5b50\u3002
\u4eca\u671d\u306f\u6e2f\u304c\u9759\u304b\u3067\u3001\u30d5\u30a7\u30ea\u30fc\u306f\u307e\u3060\u6765\u306a\u3044\u3002\uff21\uff22\uff23\uff11\uff12\uff13 \uff76\uff9e\uff77\uff9e
\u30ab\u3099\u30ad\u3099\u304f\u3099\u3051\u3099 and \u30ac\u30ae\u3050\u3052 are the same letters twice.
\uc624\ub298 \uc544\uce68 \ud56d\uad6c\ub294 \uc870\uc6a9\ud588\ub2e4. \u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00
\u0643\u0627\u0646 \u0627\u0644\u0645\u064a\u0646\u0627\u0621 \u0647\u0627\u062f\u0626\u064b\u0627 \u0641\u064a \u0627\u0644\u0635\u0628\u0627\u062d\u060c \u0648\u0639\u062f\u0651\u064e \u0661\u0662\u0663 \u0635\u0646\u062f\u0648\u0642\u064b\u0627.
\u0627\u0644\u0644\u064f\u0651\u063a\u064e\u0629\u064f \u0627\u0644\u0652\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u064e\u0629 \u06f1\u06f2\u06f3 \u200f\u202bRTL\u202c
\u05d1\u05d1\u05d5\u05e7\u05e8 \u05d4\u05e0\u05de\u05dc \u05d4\u05d9\u05d4 \u05e9\u05e7\u05d8. \u05d1\u05b0\u05bc\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea \u05e9\u05c1\u05c2
\u0938\u0941\u092c\u0939 \u092c\u0902\u0926\u0930\u0917\u093e\u0939 \u0936\u093e\u0902\u0924 \u0925\u093e, \u0914\u0930 \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f \u0928\u0947 \u0967\u096d \u092a\u0947\u091f\u093f\u092f\u093e\u0901 \u0917\u093f\u0928\u0940\u0902\u0964 \u0958 \u0915\u093c
\u09ac\u09be\u0982\u09b2\u09be \u09ad\u09be\u09b7\u09be \u09e7\u09e8\u09e9 \u09cb \u09c7\u09be; \u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0bca \u0bc6\u0bbe
\u0e40\u0e0a\u0e49\u0e32\u0e19\u0e35\u0e49\u0e17\u0e48\u0e32\u0e40\u0e23\u0e37\u0e2d\u0e40\u0e07\u0e35\u0e22\u0e1a \u0e19\u0e31\u0e1a\u0e44\u0e14\u0e49 \u0e51\u0e57 \u0e25\u0e31\u0e07 \u0e01\u0e33 \u0e01\u0e4d\u0e32
\u10d3\u10d8\u10da\u10d0 \u10db\u10e8\u10d5\u10d8\u10d3\u10dd\u10d1\u10d8\u10e1\u10d0; \u0532\u0561\u0580\u0565\u0582; \u12a0\u121b\u122d\u129b; \u1781\u17d2\u1798\u17c2\u179a; \u0f56\u0f7c\u0f51
Emoji: \U0001f600\U0001f680 \u2764\ufe0f \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea 1\ufe0f\u20e3
Maths: \u2211\u2099 x\u00b2 \u2264 \u221e, \u00bd + \u00bc = \u00be, \u2167 \u2460 \u33a1 \ufb01\ufb02 \ufb03 \u2126 \u212b \U0001d4d0\U0001d7d9
Ligatures and width: \ufdfa \ufdfb \uff9e \u3392 \u2103 \u017f \u0149 \u01c6 \u1e9b\u0323 \u2024\u2025\u2026
Controls: a\u0000b\u0001c\u0007d\u001fe\u007ff\u0080g\u0085h\u009fi
Zero width: a\u200bb\u200cc\u200dd\u2060e\ufefff\u00adg\u180eh
Private and unassigned: \ue000 \uf8ff \U000f0000 \U0010fffd \U000e0041 \u0378 \ufffe \U0003ffff
Marks in a row: e\u0301\u0323\u0302\u0308 a\u0315\u0300\u05ae\u0062 o\u0327\u0301\u0327 \u0344 \u0958\u0301 \u1e0b\u0323
\u0301starts with a mark, and \u200dstarts with a joiner
"""

CODE = """\
def median(values: list[float]) -> float:
    ordered = sorted(values)  # O(n log n)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
\tfor (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }
\t\tif (x != NULL && *x->next == '\\0') return -1;
#include <stdio.h>
SELECT name, COUNT(*) FROM users WHERE id IN (1,2,3) GROUP BY name HAVING COUNT(*) > 1;
<div class="row" id='x1'><a href="https://example.org/a?b=c&d=%20e#f">link</a></div>
{"key": [1, 2.5, null, true], "nested": {"a\\\\b": "c\\nd"}}
curl -s -X POST http://localhost:8080/v1/items -d '{"n": 1}' | jq '.[] | .name'
$ grep -rn "TODO" --include=*.cc . | wc -l
__init__ snake_case_name CamelCaseName kConstantName SCREAMING_CASE x86_64 utf8 h2o
a+b-c*d/e%f^g&h|i~j!k@l#m$n?o<p>q=r,s.t;u:v'w"x`y\\z
/usr/local/lib/python3.11/site-packages/numpy/core/_multiarray_umath.so
user.name+tag@example.co.uk, 192.168.0.1:443, 2024-02-29T23:59:60Z, +49 (0)30 1234-5678
"""

ODD = [
    "",
    " ",
    "  ",
    "\t",
    "\r",
    "\r\n",
    "   leading spaces",
    "trailing spaces   ",
    "  both  sides  and   inside    it  ",
    "tabs\tand\t\ttabs \t mixed\t ",
    "carriage return\r",
    "two\r\nlines\r\n",
    "three\n\n\nbreaks\n \n  \n",
    "no\u00a0break\u2003em\u2009thin\u3000ideographic\u1680ogham\u202fnarrow\u205fmath",
    "\u2028line\u2029paragraph\u0085next\x0bvertical\x0cform",
    " \u00a0 \u2003 \t \n \u3000 ",
    "a  \n  b \t\n\t c",
    "x" * 300,
    "ab" * 200,
    "aB1 " * 40 + "end",
    "supercalifragilistic" * 20,
    "\u4e00\u4e8c\u4e09" * 60,
    "\u0915\u094d\u0937" * 40,
    "e\u0301" * 80,
    "\u0301" * 64,
    "\U0001f600" * 40,
    " " * 120,
    " " * 60 + "x" + " " * 60,
    "\n" * 50,
    "=" * 90,
    "1" * 100,
    "12 " * 30,
    "'" * 20 + "s't're've'm'll'd",
    "'S 'T 'RE 'VE 'M 'LL 'D \u2019s '\u017f 'x",
    "\u2581\u2581already\u2581meta \u2581 space\u2581",
    "\u0120\u010a byte \u0120symbols\u010a\u00c3\u00a9",
    "<0x41><0x0A> <0xZZ> <0x4>",
    "<s>",
    "</s><s><unk>",
    "text <s> inside </s> text",
    "<s>starts and ends</s>",
    "< s > <S> <s <<s>> &lt;s&gt;",
    "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|endoftext|>  <|endoftext|>\n<|endoftext|>",
    "<|im_start", "|im_end|>", "<|im_start|", "x<|im_end|>y",
    "<|begin_of_text|>Once<|eot_id|>", "<tool_call>{}</tool_call>", "a <tool_call> b</tool_call>c",
    "[MASK]", "the  [MASK]  word", "[MASK][MASK] [MASK]x", " [mask] [Mask]",
    "yesterday was fine", "Yesterday, yesterdays, yesterday.", "(yesterday)yesterday yesterday\u0301", "myYesterday_",
    "caf\u00e9 cafe\u0301 CAF\u00c9", "<caf\u00e9> <cafe\u0301>", "  <pad>  <pad>", "<pad>\u00a0\u2003x", "a<sep>b <sep> c\n<sep>\n",
]

MIXES = [
    "Order {i}: {a} boxes of {w}, {b} left; total {c}.{d:02d} EUR (see \u00a7{i}).",
    "{w} {w}s {W}! {a}{w}{b} {w}-{w}_{a} '{w}' #{c} {w}\u00e9 \u0434{w}\u0434 {w}\u4e2d\u6587{a}",
    "\t{w}({a}, {b}) -> {W};\r",
]
WORDS = ("apple bridge candle desert engine forest garden hammer island jungle kitten lantern meadow needle orange "
         "pencil quarry rabbit silver timber umbrella valley window yellow zebra anchor basket copper dragon eagle").split()


def lines() -> list[str]:
    mixes = []
    for i, word in enumerate(WORDS):
        values = dict(i=i, a=i * i + 3, b=(i * 37) % 101, c=i * 12345 + 7, d=(i * 13) % 100, w=word, W=word.upper())
        mixes += [mix.format(**values) for mix in MIXES]
    return PROSE.split("\n")[:-1] + CODE.split("\n")[:-1] + ODD + mixes
