//! Traits and `impl` blocks of a source, with the names of their methods.

use crate::lexer::{Token, tokens};

/// A block with methods.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Trait {
        name: String,
        /// Each method, and whether it has a default.
        methods: Vec<(String, bool)>,
    },
    Impl {
        /// The trait, if the `impl` is of one.
        of: Option<String>,
        name: String,
        methods: Vec<String>,
    },
}

/// Returns the blocks of a source outside of its test modules.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut at = 0;
    let mut depth = 0usize;
    while at < tokens.len() {
        let is_item = at == 0
            || tokens[at - 1].is("}")
            || tokens[at - 1].is(";")
            || tokens[at - 1].is("]")
            || tokens[at - 1].is("{")
            || tokens[at - 1].is(")")
            || ["pub", "unsafe"].iter().any(|word| tokens[at - 1].is(word));
        match tokens[at].word() {
            Some("mod") if tokens.get(at + 1).is_some_and(|name| name.is("tests")) => {
                at = behind(&tokens, at + 2);
                continue;
            }
            Some(word @ ("trait" | "impl")) if is_item && depth == 0 => {
                let Some(open) = (at..tokens.len()).find(|&at| tokens[at].is("{")) else {
                    break;
                };
                let methods = methods(&tokens[open..behind(&tokens, open)]);
                let head = &tokens[at + 1..open];
                found.push(if word == "trait" {
                    let name = head[0].word().unwrap_or_default().to_owned();
                    Block::Trait { name, methods }
                } else {
                    let (of, name) = subject(head);
                    let methods = methods.into_iter().map(|(name, _)| name).collect();
                    Block::Impl { of, name, methods }
                });
                at = behind(&tokens, open);
                continue;
            }
            _ if tokens[at].is("{") => depth += 1,
            _ if tokens[at].is("}") => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    found
}

/// Returns the names of the structs and enums that a source defines.
pub(crate) fn types(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let defines = |pair: &&[Token]| pair[0].is("struct") || pair[0].is("enum");
    let pairs = tokens.windows(2).filter(defines);
    pairs
        .filter_map(|pair| Some(pair[1].word()?.to_owned()))
        .collect()
}

/// Returns the names of the functions of a source that destructure a tuple among their parameters.
pub(crate) fn packed(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|&at| tokens[at].is("fn")) {
        let Some(name) = tokens.get(at + 1).and_then(Token::word) else {
            continue;
        };
        let Some(open) = (at + 2..tokens.len()).find(|&at| tokens[at].is("(")) else {
            continue;
        };
        let mut depth = 0usize;
        for index in open..tokens.len() {
            let begins = index > open && (tokens[index - 1].is("(") || tokens[index - 1].is(","));
            if tokens[index].is("(") {
                depth += 1;
                if depth == 2 && begins {
                    found.push(name.to_owned());
                    break;
                }
            } else if tokens[index].is(")") {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
        }
    }
    found
}

/// Returns the trait and the type of an `impl`, from the tokens between the word and the brace.
fn subject(head: &[Token]) -> (Option<String>, String) {
    let mut names: [Vec<&str>; 2] = Default::default();
    let (mut angles, mut side) = (0i32, 0);
    for (index, token) in head.iter().enumerate() {
        let is_arrow = index > 0 && head[index - 1].is("-");
        match token {
            _ if token.is("<") => angles += 1,
            _ if token.is(">") && !is_arrow => angles -= 1,
            _ if angles > 0 => {}
            _ if token.is("for") => side = 1,
            _ if token.is("where") => break,
            _ => names[side].extend(token.word().filter(|word| *word != "dyn")),
        }
    }
    let last = |names: &[&str]| names.last().copied().unwrap_or_default().to_owned();
    match side {
        0 => (None, last(&names[0])),
        _ => (Some(last(&names[0])), last(&names[1])),
    }
}

/// Returns the methods of a block that starts with its brace.
fn methods(block: &[Token]) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let (mut depth, mut at) = (0usize, 0);
    while at < block.len() {
        if block[at].is("{") {
            depth += 1;
        } else if block[at].is("}") {
            depth -= 1;
        } else if depth == 1
            && block[at].is("fn")
            && let Some(name) = block.get(at + 1).and_then(Token::word)
        {
            let end = (at..block.len()).find(|&at| block[at].is("{") || block[at].is(";"));
            let has_body = end.is_some_and(|end| block[end].is("{"));
            found.push((name.to_owned(), has_body));
        }
        at += 1;
    }
    found
}

/// Returns the index behind the brace that closes the one at `open`, or behind `open` if there is no brace.
fn behind(tokens: &[Token], open: usize) -> usize {
    if !tokens.get(open).is_some_and(|token| token.is("{")) {
        return open + 1;
    }
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        if token.is("{") {
            depth += 1;
        } else if token.is("}") {
            depth -= 1;
            if depth == 0 {
                return index + 1;
            }
        }
    }
    tokens.len()
}

#[test]
fn tuples_are_told_from_types_of_functions() {
    let text = "fn plain(at: (u8, u8), f: fn(u8)) {} fn packs(&self, (a, b): (u8, u8)) {} fn none() -> (u8, u8) {}";
    assert_eq!(packed(text), ["packs"]);
}

#[test]
fn methods_are_told_from_functions_and_tests() {
    let text = "pub trait Probe<T>: Send { fn look(&self) -> u8; fn touch(&self) { fn inner() {} } }
        impl<T: Fn() -> u8> crate::seam::Probe<T> for Table<T> where T: Copy { fn look(&self) -> u8 { 1 } }
        impl Table<u8> { const fn new() -> Self { Self } pub(crate) fn len(&self) {} }
        fn alone() -> impl Iterator { 1..2 }
        #[cfg(test)] mod tests { impl Table { fn extra(&self) {} } }";
    let found = blocks(text);
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(
        found,
        [
            Block::Trait {
                name: "Probe".to_owned(),
                methods: vec![("look".to_owned(), false), ("touch".to_owned(), true)],
            },
            Block::Impl {
                of: Some("Probe".to_owned()),
                name: "Table".to_owned(),
                methods: names(&["look"]),
            },
            Block::Impl {
                of: None,
                name: "Table".to_owned(),
                methods: names(&["new", "len"]),
            },
        ]
    );
}
