"""Texts on which tokenizer implementations part ways, encoded by both encoders whenever a tokenizer is loaded."""

from __future__ import annotations

from tokenmill.encode.added import added_token_texts
from tokenmill.encode.resolve import Tokenizer

# What any document may contain.
ORDINARY_TEXTS = (
    "Net income rose 12.5% to $1,234,567.89 in Q3 FY2024, vs. $998k a year earlier.",
    "don't can't I'LL we've they'd O'Brien's 'quoted' ''double''",
)

_TEXTS = (
    *ORDINARY_TEXTS,
    # scripts
    "Die Bürgschaft über 3 Mio. € läuft aus; größere Beträge schließen wir aus.",
    "L'économie française a crû de 0,3 % — grâce à l'export…",
    "Рынок облигаций вырос на 2,7 процента за квартал.",
    "日本銀行は金利を据え置いた。株価は上昇した。",
    "中国人民银行下调存款准备金率0.5个百分点。",
    "한국은행이 기준금리를 동결했다.",
    "बाज़ार आज गिरावट के साथ बंद हुआ।",
    "ارتفعت أسعار النفط بنسبة ٣٪ اليوم.",
    "השוק עלה היום ב־2%.",
    "ตลาดหุ้นไทยปิดบวกวันนี้",
    "Η αγορά έκλεισε με άνοδο. ΣΊΣΥΦΟΣ σίσυφος",
    "İstanbul ısı IŞIK ß ẞ ﬁ ﬂ Ǆ ǅ",
    # combining marks, composed and not; several in either order; alone
    "e\u0301 \u00e9 a\u0308 \u00e4 o\u0302\u0323 o\u0323\u0302 \u0301alone \u1e9b\u0323 \u212b \u2126 Å",
    "\u1100\u1161\u11a8 \uac01 \u0f71\u0f72\u0f74 q\u0307\u0323",
    # emoji, joiners, selectors, flags, invisible and bidirectional controls, private use, the last code point
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ ☠ \U0001f9ff",
    "zero\u200bwidth\u200djoin\u2060er \u202eright\u202c \ufeffbom \u00adsoft \u2028line \u2029para \x85next",
    "\ue000 \U000f0000 \U0010ffff \ufffd \ufffe",
    "\x00 \x01\x02 \x07 \x1b[31mred\x1b[0m \x7f",
    # white space
    " leading and trailing ",
    "  two   three    four     five      six",
    "\t\ttabs\t \t mixed \n\n\nnew\r\nlines\r\rreturns \n ",
    "\n" * 50 + " " * 100 + "\t" * 40 + "\u00a0" * 9 + "\u3000" * 7 + "\u2003" * 5,
    " ",
    "\n",
    "x" + " " * 23 + "y" + " " * 24 + "z" + " " * 25,
    # long runs
    "a" * 600,
    "ab" * 400,
    "=" * 300 + "-" * 300 + "." * 300 + "_" * 100,
    "0" * 200 + "1234567890" * 30,
    "é" * 150 + "漢" * 150 + "😀" * 60,
    "AAAAaaaaBBBBbbbb" * 20,
    # numbers
    "1 12 123 1234 12345 1,000,000 3.14159 -0.5e-10 0xDEADBEEF 1/2 ½ ² ⅷ ١٢٣ １２３",
    # code and markup
    "def f(x):\n    if x > 0:\n        return {'a': [1, 2]}  # why\n\n\tpass\n",
    '#include <stdio.h>\nint main(void) { printf("%d\\n", 1 << 2); return 0; }\n',
    '<html><body class="x">&nbsp;&lt;b&gt;</body></html><!-- c -->',
    "SELECT * FROM t WHERE a='b' AND c<>1; -- done",
    "https://example.com/path?q=1&r=%20#frag user@example.com C:\\dir\\file.txt /usr/bin/env",
    "$AAPL $BRK.B EUR/USD ISIN US0378331005 10-K §4(a)(ii) ©®™",
    "| a | b |\n|---|:-:|\n| 1 | 2 |\n\n```python\nx=1\n```\n",
    # looks like, but is not, a special token
    "<|endof text|> <|endoftext| > <|ENDOFTEXT|> |endoftext| <s </s [PAD <pad <| |>",
)


def torture_set(tokenizer: Tokenizer) -> list[str]:
    """The built-in texts, and those with the added tokens of the tokenizer, special or not."""
    return [*_TEXTS, *added_token_texts(tokenizer.added_flags)]
