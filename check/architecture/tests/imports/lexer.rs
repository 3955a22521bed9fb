//! Tokens of Rust text, without comments, strings, characters and lifetimes.

/// A word, `::`, or a sign of one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    PathSeparator,
    Sign(char),
}

impl Token {
    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(crate) fn is(&self, text: &str) -> bool {
        match self {
            Self::Word(word) => word == text,
            Self::PathSeparator => text == "::",
            Self::Sign(sign) => text.chars().eq([*sign]),
        }
    }
}

/// Returns the tokens of a source.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let text: Vec<char> = text.chars().collect();
    let at = |index: usize| text.get(index).copied().unwrap_or('\0');
    let in_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let mut tokens = Vec::new();
    let mut index = 0;
    while index < text.len() {
        let sign = at(index);
        match sign {
            '/' if at(index + 1) == '/' => {
                while index < text.len() && at(index) != '\n' {
                    index += 1;
                }
            }
            '/' if at(index + 1) == '*' => index = after_comment(&text, index),
            '"' => index = after_string(&text, index),
            '\'' if at(index + 1) == '\\' => {
                index += 3;
                while index < text.len() && at(index) != '\'' {
                    index += 1;
                }
                index += 1;
            }
            '\'' if at(index + 2) == '\'' => index += 3,
            '\'' => {
                index += 1;
                while in_word(at(index)) {
                    index += 1;
                }
            }
            ':' if at(index + 1) == ':' => {
                tokens.push(Token::PathSeparator);
                index += 2;
            }
            _ if in_word(sign) => {
                let start = index;
                while in_word(at(index)) {
                    index += 1;
                }
                let word: String = text[start..index].iter().collect();
                if matches!(word.as_str(), "r" | "br" | "cr") && matches!(at(index), '"' | '#') {
                    index = after_raw_string(&text, index);
                } else {
                    tokens.push(Token::Word(word));
                }
            }
            _ => {
                if !sign.is_whitespace() {
                    tokens.push(Token::Sign(sign));
                }
                index += 1;
            }
        }
    }
    tokens
}

/// Returns the index behind the block comment that starts at `index`; block comments nest.
fn after_comment(text: &[char], mut index: usize) -> usize {
    let mut depth = 0;
    while index < text.len() {
        match text[index..] {
            ['/', '*', ..] => depth += 1,
            ['*', '/', ..] => depth -= 1,
            _ => {
                index += 1;
                continue;
            }
        }
        index += 2;
        if depth == 0 {
            break;
        }
    }
    index
}

/// Returns the index behind the string whose opening quote is at `index`.
fn after_string(text: &[char], mut index: usize) -> usize {
    index += 1;
    while index < text.len() && text[index] != '"' {
        index += if text[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

/// Returns the index behind the raw string whose first `#` or quote is at `index`. A raw identifier only
/// loses its `r#`.
fn after_raw_string(text: &[char], index: usize) -> usize {
    let hashes = text[index..]
        .iter()
        .take_while(|sign| **sign == '#')
        .count();
    let mut at = index + hashes;
    if text.get(at) != Some(&'"') {
        return at;
    }
    at += 1;
    while at < text.len() {
        let closes = text[at] == '"'
            && text[at + 1..]
                .iter()
                .take(hashes)
                .filter(|sign| **sign == '#')
                .count()
                == hashes;
        at += 1;
        if closes {
            return at + hashes;
        }
    }
    at
}
