//! Random texts of all scripts.

use fastrand::Rng;
use regex::Regex;

use crate::Result;

/// The version of Unicode that llama.cpp's tables have. Characters that came later have other properties there.
const UNICODE: &str = "15.1";

/// What pre-tokenizers treat in ways of their own.
const SEPARATORS: &[&str] = &[
    " ",
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    "\r\n",
    "\r",
    "\t",
    "\t\t",
    " \t ",
    "\u{B}",
    "\u{C}",
    "\u{A0}",
    "\u{85}",
    "\u{2003}",
    "\u{2028}",
    "\u{3000}",
    "\u{3000} ",
    "                ",
];
const MARKS: &[&str] = &[
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "'S",
    "'T",
    "'RE",
    "'vE",
    "'M",
    "'Ll",
    "'D",
    "'ſ",
    "'",
    "''",
    "’s",
    ".",
    "...",
    ",",
    "!?",
    "(",
    ")]}",
    "/",
    "//",
    "--",
    "—",
    "+=",
    "<",
    ">",
    "$",
    "^",
    "`",
    "~",
    "|",
    "_",
    "#",
    "@",
    "\"",
    "«",
    "…",
    "。",
    "、",
    "¿",
    "\0",
    "\u{1B}",
    "\u{7F}",
    "\u{200D}",
    "\u{FEFF}",
    "\u{AD}",
    "\u{FFFD}",
    "▁",
    "▁▁",
    "Ġ",
    "Ċ",
    "##",
    "<0x41>",
    "👩‍👩‍👧",
    "🏳️‍🌈",
    "🇩🇪",
    "é",
    "e\u{301}",
];
const WORDS: &[&str] = &[
    "the",
    "The",
    "THE",
    "tokenizer",
    "don",
    "it",
    "hello",
    "World",
    "camelCase",
    "HTTPServer",
    "iPhone",
    "naïve",
    "Straße",
    "ÉCOLE",
    "привет",
    "Москва",
    "Ελλάδα",
    "ΣΊΣΥΦΟΣ",
    "שלום",
    "مرحبا",
    "नमस्ते",
    "ภาษาไทย",
    "中文字符",
    "日本語",
    "ひらがな",
    "カタカナ",
    "한국어",
    "한",
    "ქართული",
    "ᏣᎳᎩ",
    "አማርኛ",
    "ខ្មែរ",
    "İstanbul",
    "ǅ",
    "ﬁ",
    "ΐ",
    "Ω",
    "K",
    "²³",
    "Ⅷ",
    "٣٤٥",
    "१२३",
    "½",
];

/// Draws texts.
pub struct Texts {
    random: Rng,
    characters: Vec<char>,
    special: Vec<String>,
    /// Characters of later versions of Unicode.
    pub newer: usize,
}

impl Texts {
    pub fn new(seed: u64) -> Result<Self> {
        let old = Regex::new(&format!(r"[\p{{Age={UNICODE}}}\p{{Cn}}]"))?;
        let is_old = |character: char| old.is_match(character.encode_utf8(&mut [0; 4]));
        // Of the planes behind the third, which are empty or private, and of unassigned characters, a few are enough.
        let few = ['\u{378}', '\u{2FFFF}', '\u{E0001}', '\u{E0100}', '\u{F0000}', '\u{10FFFD}'];
        let mut characters: Vec<char> = ('\0'..'\u{323B0}').filter(|&character| is_old(character)).collect();
        let newer = ('\0'..'\u{323B0}').count() - characters.len();
        let assigned = Regex::new(r"\P{Cn}")?;
        characters.retain(|character| assigned.is_match(character.encode_utf8(&mut [0; 4])));
        characters.extend(few);
        Ok(Self { random: Rng::with_seed(seed), characters, special: Vec::new(), newer })
    }

    /// Texts then have these special tokens, and parts of them.
    pub fn with_special(&mut self, special: &[&str]) {
        self.special = special.iter().map(|&text| text.to_owned()).collect();
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.random.usize(..one_in) == 0
    }

    pub fn below(&mut self, n: i32) -> i32 {
        self.random.i32(0..n)
    }

    /// A text of some runs.
    pub fn text(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.random.usize(1..16) {
            self.run(&mut text);
            if self.random.bool() {
                text.push_str(self.random.choice(SEPARATORS).unwrap_or(&" "));
            }
        }
        text
    }

    fn run(&mut self, text: &mut String) {
        match self.random.u32(..16) {
            0..4 => text.push_str(self.random.choice(WORDS).unwrap_or(&"")),
            4..6 => text.push_str(self.random.choice(MARKS).unwrap_or(&"")),
            6..8 => {
                for _ in 0..self.random.usize(1..8) {
                    text.push(self.random.char('0'..='9'));
                }
            }
            // A word: neighbours are of one script.
            8..12 => {
                let start = self.random.usize(..self.characters.len());
                for _ in 0..self.random.usize(1..8) {
                    let place = start + self.random.usize(..40);
                    text.push(self.characters[place % self.characters.len()]);
                }
            }
            12 => {
                for _ in 0..self.random.usize(1..12) {
                    text.push(if self.random.bool() { self.random.uppercase() } else { self.random.lowercase() });
                }
            }
            13 => text.push_str(self.random.choice(SEPARATORS).unwrap_or(&" ")),
            14 => text.push(self.random.choice(&self.characters).copied().unwrap_or('?')),
            _ => {
                let special = self.random.choice(&self.special).cloned().unwrap_or_default();
                let cut = if self.random.bool() {
                    special.chars().count()
                } else {
                    self.random.usize(..=special.chars().count())
                };
                text.extend(special.chars().take(cut));
                if self.chance(4) {
                    text.push('\u{301}'); // which some maps of characters join with what is before it
                }
            }
        }
    }
}
