//! The modules of a crate, the items that each defines and names, and the file that defines a name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::circles::Edge;
use crate::lexer::{Token, tokens};

/// Maximum number of re-exports that are followed for one name.
const MOST_STEPS: usize = 32;

/// Returns the imports between files, given their texts by their paths below the crate's `src/`.
///
/// An import is a `use` that is not a re-export, or a path in the code. Its target is the file that defines
/// the item, whatever re-exports lead to it. Tests and documentation are left out.
pub(crate) fn edges(files: &BTreeMap<PathBuf, String>) -> Vec<Edge> {
    let mut tree = Tree {
        files,
        modules: Vec::new(),
    };
    for path in files.keys() {
        let name = path.to_string_lossy();
        if name == "lib.rs" || name == "main.rs" || name.starts_with("bin/") {
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            tree.read_file(path, folder, None);
        }
    }
    let mut edges = BTreeSet::new();
    for (id, module) in tree.modules.iter().enumerate() {
        for path in module.named() {
            if let Some(Target::Item { file, name }) = tree.resolve(id, path, MOST_STEPS)
                && file != module.file
            {
                edges.insert(Edge {
                    from: module.file.clone(),
                    to: file,
                    name,
                });
            }
        }
    }
    edges.into_iter().collect()
}

/// A `use` of one name, or of everything (`*`).
struct Use {
    path: Vec<String>,
    alias: String,
    re_export: bool,
}

#[derive(Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Paths in the code. A path of one word counts only if it may be an item: a type or a call.
    paths: BTreeSet<Vec<String>>,
}

impl Module {
    /// Returns every path that this module names.
    fn named(&self) -> impl Iterator<Item = &Vec<String>> {
        let imports = self.uses.iter().filter(|import| !import.re_export);
        imports.map(|import| &import.path).chain(&self.paths)
    }
}

/// The target of a path.
enum Target {
    Module(usize),
    /// An item, by the file that defines it.
    Item {
        file: String,
        name: String,
    },
    /// An item of another crate, a local name or a word of the language.
    Elsewhere,
}

struct Tree<'a> {
    files: &'a BTreeMap<PathBuf, String>,
    modules: Vec<Module>,
}

impl Tree<'_> {
    /// Reads a file as a module whose children lie in `folder`. Returns the module's id.
    fn read_file(&mut self, path: &Path, folder: PathBuf, parent: Option<usize>) -> usize {
        let tokens = tokens(&self.files[path]);
        let id = self.add(path.to_string_lossy().into_owned(), parent);
        self.read(id, &folder, &tokens);
        id
    }

    fn add(&mut self, file: String, parent: Option<usize>) -> usize {
        self.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        self.modules.len() - 1
    }

    /// Reads the body of a module.
    fn read(&mut self, id: usize, folder: &Path, tokens: &[Token]) {
        let mut depth = 0;
        let mut at = 0;
        let mut public = false;
        while at < tokens.len() {
            let was_public = std::mem::take(&mut public);
            let next = tokens.get(at + 1).and_then(Token::word);
            match &tokens[at] {
                Token::Sign('#') => {
                    let inner = tokens.get(at + 1).is_some_and(|token| token.is("!"));
                    let end = after_group(tokens, at + 1 + usize::from(inner));
                    at = if is_test(&tokens[at..end]) {
                        after_item(tokens, end)
                    } else {
                        end
                    };
                    continue;
                }
                Token::Sign('{' | '(' | '[') => depth += 1,
                Token::Sign('}' | ')' | ']') => depth -= 1,
                Token::Word(word) => match word.as_str() {
                    "pub" => {
                        public = true;
                        if tokens.get(at + 1).is_some_and(|token| token.is("(")) {
                            at = after_group(tokens, at + 1);
                            continue;
                        }
                    }
                    "use" if !tokens.get(at + 1).is_some_and(|token| token.is("<")) => {
                        at = self.read_use(id, tokens, at + 1, &mut Vec::new(), was_public);
                        continue;
                    }
                    "mod" if depth == 0 => {
                        at = self.read_child(id, folder, tokens, at + 1);
                        continue;
                    }
                    "macro_rules" if depth == 0 => {
                        let name = tokens.get(at + 2).and_then(Token::word);
                        self.modules[id].items.extend(name.map(str::to_owned));
                        // The paths are those of its users.
                        at = after_group(tokens, at + 3);
                        continue;
                    }
                    "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static"
                        if depth == 0 =>
                    {
                        let keyword = matches!(next, Some("fn" | "unsafe" | "extern" | "mut"));
                        if !keyword {
                            self.modules[id].items.extend(next.map(str::to_owned));
                            at += usize::from(next.is_some());
                        }
                    }
                    _ => {
                        let mut path = vec![word.clone()];
                        let start = at;
                        while let (Some(Token::PathSeparator), Some(Token::Word(word))) =
                            (tokens.get(at + 1), tokens.get(at + 2))
                        {
                            path.push(word.clone());
                            at += 2;
                        }
                        let before = start.checked_sub(1).map(|before| &tokens[before]);
                        let is_local = path.len() == 1
                            && word.starts_with(char::is_lowercase)
                            && !tokens.get(at + 1).is_some_and(|token| token.is("("));
                        let goes_on = before.is_some_and(|token| token.is(".") || token.is("::"));
                        if !is_local && !goes_on {
                            self.modules[id].paths.insert(path);
                        }
                    }
                },
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads `name;` or `name { … }` behind `mod`. Returns the index behind it.
    fn read_child(&mut self, id: usize, folder: &Path, tokens: &[Token], at: usize) -> usize {
        let Some(name) = tokens.get(at).and_then(Token::word) else {
            return at;
        };
        let below = folder.join(name);
        let (child, end) = if tokens.get(at + 1).is_some_and(|token| token.is("{")) {
            let end = after_group(tokens, at + 1);
            let child = self.add(self.modules[id].file.clone(), Some(id));
            self.read(child, &below, &tokens[at + 2..end - 1]);
            (child, end)
        } else {
            let path = [below.with_extension("rs"), below.join("mod.rs")]
                .into_iter()
                .find(|path| self.files.contains_key(path))
                .unwrap_or_else(|| panic!("no file for module {}", below.display()));
            (self.read_file(&path, below, Some(id)), at + 2)
        };
        self.modules[id].children.insert(name.to_owned(), child);
        end
    }

    /// Reads one tree of a `use` below `prefix`. Returns the index behind it.
    fn read_use(
        &mut self,
        id: usize,
        tokens: &[Token],
        mut at: usize,
        prefix: &mut Vec<String>,
        re_export: bool,
    ) -> usize {
        let length = prefix.len();
        let mut alias = String::new();
        while let Some(token) = tokens.get(at) {
            match token {
                Token::Sign('{') => {
                    let end = after_group(tokens, at);
                    at += 1;
                    while at < end - 1 {
                        at = self.read_use(id, tokens, at, prefix, re_export);
                        at += usize::from(tokens[at].is(","));
                    }
                    prefix.truncate(length);
                    return end;
                }
                Token::Sign('*') => "*".clone_into(&mut alias),
                Token::Word(word) if word == "as" => {
                    at += 1;
                    alias = tokens[at].word().unwrap_or_default().to_owned();
                }
                Token::Word(word) if word == "self" && !prefix.is_empty() => {
                    alias = prefix.last().cloned().unwrap_or_default();
                }
                Token::Word(word) => {
                    alias.clone_from(word);
                    prefix.push(word.clone());
                }
                Token::PathSeparator => {}
                Token::Sign(_) => break,
            }
            at += 1;
        }
        self.modules[id].uses.push(Use {
            path: prefix.clone(),
            alias,
            re_export,
        });
        prefix.truncate(length);
        at
    }

    fn resolve(&self, from: usize, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let mut module = from;
        for (index, name) in path.iter().enumerate() {
            module = match name.as_str() {
                "self" => module,
                "super" => self.modules[module].parent?,
                "crate" => self.root(module),
                _ => match self.look_up(module, name, index + 1 == path.len(), steps) {
                    Some(Target::Module(child)) => child,
                    None if index == 0 => return Some(Target::Elsewhere),
                    // A macro of that module defines the item.
                    None => return Some(self.item(module, name)),
                    found => return found,
                },
            };
        }
        Some(Target::Module(module))
    }

    fn item(&self, module: usize, name: &str) -> Target {
        Target::Item {
            file: self.modules[module].file.clone(),
            name: name.to_owned(),
        }
    }

    fn root(&self, mut module: usize) -> usize {
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }

    /// Returns the target of a name in a module. If an item and a child share the name, the last name of a
    /// path is the item.
    fn look_up(&self, id: usize, name: &str, last: bool, steps: usize) -> Option<Target> {
        let module = &self.modules[id];
        let item = module.items.contains(name);
        if let Some(child) = module.children.get(name)
            && !(last && item)
        {
            return Some(Target::Module(*child));
        }
        if item {
            return Some(self.item(id, name));
        }
        let import = module.uses.iter().find(|import| import.alias == name);
        if let Some(import) = import {
            return self.resolve(id, &import.path, steps);
        }
        let globs = module.uses.iter().filter(|import| import.alias == "*");
        globs
            .filter_map(|import| match self.resolve(id, &import.path, steps)? {
                Target::Module(named) if named != id => {
                    self.look_up(named, name, last, steps.checked_sub(1)?)
                }
                _ => None,
            })
            .next()
    }
}

/// Returns whether an attribute limits the item behind it to tests.
fn is_test(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().filter_map(Token::word).collect();
    matches!(
        words[..],
        ["test"] | ["cfg", "test"] | ["cfg", "all", "test", ..]
    )
}

/// Returns the index behind the bracket that closes the one at `at`.
fn after_group(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::Sign('{' | '(' | '[') => depth += 1,
            Token::Sign('}' | ')' | ']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Returns the index behind the item, field or statement that starts at `at`.
fn after_item(tokens: &[Token], mut at: usize) -> usize {
    const KEYWORDS: [&str; 12] = [
        "async", "const", "enum", "fn", "impl", "mod", "static", "struct", "trait", "type",
        "unsafe", "use",
    ];
    let mut keyword = false;
    while let Some(token) = tokens.get(at) {
        match token {
            Token::Sign('{') => return after_group(tokens, at),
            Token::Sign('(' | '[') => {
                at = after_group(tokens, at);
                continue;
            }
            Token::Sign(';') => return at + 1,
            Token::Sign(',') if !keyword => return at + 1,
            Token::Sign('}' | ')' | ']') => return at,
            Token::Word(word) => keyword |= KEYWORDS.contains(&word.as_str()),
            _ => {}
        }
        at += 1;
    }
    at
}
