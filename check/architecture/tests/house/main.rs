//! House measures: the width of the seams, the size of objects, and the words of comments. Each measure has a
//! bound and an aim. A bound is only ever lowered, except those of lines, which new features raise. `cargo test -p
//! flowstone-architecture --test house -- --nocapture` prints the figures.

#[path = "../imports/files.rs"]
mod files;
#[path = "../imports/lexer.rs"]
mod lexer;
mod lines;
mod objects;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use files::each_file;
use objects::{Block, blocks, packed, types};
use words::Prose;

/// A seam: its traits, and the bound of the number of their methods.
struct Seam {
    name: &'static str,
    traits: &'static [&'static str],
    methods: usize,
}

const SEAMS: &[Seam] = &[
    Seam {
        name: "placement",
        traits: &["Placement", "PlacementKind", "Residents"],
        methods: 20,
    },
    Seam {
        name: "admission",
        traits: &["Admission", "AdmissionKind", "Observer"],
        methods: 9,
    },
];
/// Methods of a seam whose default a single implementor overrides.
const LONE_DEFAULTS: usize = 0;
/// Methods of the type that has most, without the methods of traits. The aim is 40.
const METHODS_OF_A_TYPE: usize = 39;
/// Files over which the methods of one type are spread. The aim is 1.
const FILES_OF_A_TYPE: usize = 1;
/// Functions that destructure a tuple among their parameters. The aim is 0.
const PACKED_PARAMETERS: usize = 2;
/// Lines of code that a build of the product compiles. The aim is 32,000.
const LINES_OF_THE_PRODUCT: usize = 40_642;
/// Lines of Rust in all. A new system raises the bound by its own lines. The aim is 145,000.
const LINES_IN_ALL: usize = 183_705;
/// The word `what` in 10,000 words of comments.
const WHAT_IN_COMMENTS: usize = 5;
/// The word `what` in 10,000 words of the documents.
const WHAT_IN_DOCUMENTS: usize = 12;
/// The phrases `so many`, `so much` and `of them`, and sentences that begin with `Of`, in 10,000 words of
/// comments.
const MARKS_IN_COMMENTS: usize = 5;
/// The same phrases in the documents.
const MARKS_IN_DOCUMENTS: usize = 6;

/// The folders with the sources of the project.
const FOLDERS: &[&str] = &["product", "systems", "lab", "check"];

#[test]
fn the_seams_are_no_wider_than_they_were() {
    let engine = sources(&["product/engine/src", "systems"]);
    for seam in SEAMS {
        measure(seam, &engine);
    }
}

/// Holds the number of methods of a seam in these sources, and of its defaults with a single implementor.
fn measure(seam: &Seam, engine: &[(PathBuf, String)]) {
    let mut declared: BTreeMap<String, bool> = BTreeMap::new();
    let mut implementors: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for block in engine.iter().flat_map(|(_, text)| blocks(text)) {
        match block {
            Block::Trait { name, methods } if seam.traits.contains(&name.as_str()) => {
                for (method, has_default) in methods {
                    declared.insert(format!("{name}::{method}"), has_default);
                }
            }
            Block::Impl {
                of: Some(of),
                name,
                methods,
            } if seam.traits.contains(&of.as_str()) => {
                for method in methods {
                    let users = implementors.entry(format!("{of}::{method}")).or_default();
                    users.insert(name.clone());
                }
            }
            Block::Trait { .. } | Block::Impl { .. } => {}
        }
    }
    let users = |method: &str| implementors.get(method).map_or(0, BTreeSet::len);
    let lone: Vec<&str> = declared
        .iter()
        .filter(|(method, has_default)| **has_default && users(method) == 1)
        .map(|(method, _)| method.as_str())
        .collect();
    assert!(!declared.is_empty(), "the traits of the seam are found");
    let measured = |measure: &str| format!("{measure} of the seam of {}", seam.name);
    hold(&measured("methods"), declared.len(), seam.methods, "");
    let defaults = measured("defaults with one implementor");
    hold(&defaults, lone.len(), LONE_DEFAULTS, &lone.join(", "));
}

#[test]
fn no_type_has_more_methods_or_files_than_the_largest_had() {
    let mut methods: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut files: BTreeMap<(String, String), BTreeSet<PathBuf>> = BTreeMap::new();
    let sources = sources(&["product", "systems"]);
    let package = |path: &Path| {
        let folders: PathBuf = path.components().take(2).collect();
        folders.display().to_string()
    };
    let mut definitions: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (path, text) in &sources {
        for name in types(text) {
            *definitions.entry((package(path), name)).or_default() += 1;
        }
    }
    for (path, text) in &sources {
        for block in blocks(text) {
            if let Block::Impl {
                of: None,
                name,
                methods: own,
            } = block
            {
                let key = (package(path), name);
                // Private types may share a name; each has its own file.
                if definitions.get(&key) != Some(&1) {
                    continue;
                }
                *methods.entry(key.clone()).or_default() += own.len();
                files.entry(key).or_default().insert(path.clone());
            }
        }
    }
    let (most, count) = methods
        .iter()
        .max_by_key(|(_, count)| **count)
        .expect("there are types");
    hold("methods of one type", *count, METHODS_OF_A_TYPE, &most.1);
    let (most, paths) = files
        .iter()
        .max_by_key(|(_, paths)| paths.len())
        .expect("there are types");
    hold("files of one type", paths.len(), FILES_OF_A_TYPE, &most.1);
}

#[test]
fn no_more_functions_pack_their_arguments() {
    let packed: Vec<String> = sources(FOLDERS)
        .iter()
        .filter(|(path, _)| path.components().any(|part| part.as_os_str() == "src"))
        .flat_map(|(_, text)| packed(text))
        .collect();
    hold("packed parameters", packed.len(), PACKED_PARAMETERS, "");
}

#[test]
fn every_crate_but_two_forbids_unsafe_code() {
    let is_root = |path: &Path| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    let allowed = ["product/runtime", "lab/bench/limit"];
    for (path, text) in sources(FOLDERS) {
        if is_root(&path) && !allowed.iter().any(|folder| path.starts_with(folder)) {
            let forbids = text.contains("#![forbid(unsafe_code)]");
            assert!(forbids, "{} allows unsafe code", path.display());
        }
    }
}

#[test]
fn item_16_the_texts_of_the_library_name_no_option_of_a_command_line() {
    let library = [
        "runtime",
        "format",
        "device",
        "index",
        "engine",
        "flowstone",
    ];
    let library = library.map(|crate_| format!("product/{crate_}/src"));
    let folders: Vec<&str> = library.iter().map(String::as_str).collect();
    let is_option = |word: &str| {
        let name = word.trim_start_matches(['(', '`', '"']).strip_prefix("--");
        name.is_some_and(|name| name.starts_with(char::is_alphabetic))
    };
    for (path, text) in sources(&folders) {
        let (code, _tests) = text.split_once("\nmod tests {").unwrap_or((&text, ""));
        let texts = code.lines().filter(|line| {
            let line = line.trim_start();
            !line.starts_with("//")
                && !["cargo test", "blockdev"]
                    .iter()
                    .any(|other| line.contains(other))
        });
        for line in texts {
            let has_option = line.split_whitespace().any(is_option);
            assert!(!has_option, "{}: {}", path.display(), line.trim());
        }
    }
}

#[test]
fn comments_and_documents_are_in_plain_words() {
    let comments: Prose = sources(FOLDERS)
        .iter()
        .map(|(_, text)| Prose::of_comments(text))
        .sum();
    let documents: Prose = documents()
        .iter()
        .map(|text| Prose::of_markdown(text))
        .sum();
    for (place, prose, what, marks) in [
        ("comments", comments, WHAT_IN_COMMENTS, MARKS_IN_COMMENTS),
        (
            "documents",
            documents,
            WHAT_IN_DOCUMENTS,
            MARKS_IN_DOCUMENTS,
        ),
    ] {
        let about = format!("in 10,000 words of {place}");
        hold("\"what\"", prose.in_10_000(prose.what), what, &about);
        hold("marks", prose.in_10_000(prose.marks), marks, &about);
    }
}

#[test]
fn the_product_and_the_whole_are_no_longer_than_they_were() {
    let product = sources(&["product"]);
    assert!(product.len() > 100, "the sources are found");
    let built = lines::built(&product);
    hold(
        "lines that a build of the product compiles",
        built,
        LINES_OF_THE_PRODUCT,
        "",
    );
    let all = sources(FOLDERS);
    let all = all.iter().map(|(_, text)| text.lines().count()).sum();
    hold("lines of Rust in all", all, LINES_IN_ALL, "");
}

/// Prints a figure, and fails if it is above its bound.
#[expect(clippy::print_stdout, reason = "the command prints the figures")]
fn hold(measure: &str, figure: usize, bound: usize, about: &str) {
    println!("{measure}: {figure} (bound {bound}) {about}");
    assert!(
        figure <= bound,
        "{measure}: {figure}, and {bound} at most. {about}"
    );
}

/// Returns the sources below these folders of the project, by their paths.
fn sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let root = root();
    let mut found = Vec::new();
    for folder in folders {
        each_file(&root.join(folder), "rs", &mut |path, text| {
            let path = path.strip_prefix(&root).expect("it lies below the root");
            found.push((path.to_owned(), text));
        });
    }
    found
}

/// Returns the documents of the project. `CHANGELOG.md` describes the past and is left out.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    each_file(&root().join("docs"), "md", &mut |_, text| found.push(text));
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ] {
        found.push(std::fs::read_to_string(root().join(name)).expect("a document is readable"));
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
