//! Dependencies point down: between crates, between the engine's modules, and between the files of each
//! crate. The tests read the text of the sources and do not see names that a macro or a method call brings
//! in.

mod circles;
mod files;
mod lexer;
mod modules;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use circles::{Edge, circles};
use paths::normal;

/// Folders of crates, the lowest first. A crate depends on crates of its own folder and of lower folders. The
/// program is in `lab` and has the checkers as a command; the emulated devices of `lab` are for all but the product.
const FOLDERS: &[&str] = &["product", "lab/emulated", "systems", "check", "lab"];

/// Stands for the crates of the systems in [`CRATES`]. They may depend on crates of the same system.
const SYSTEM: &str = "a system";

/// Folders of `systems/` that are no system: the list, and parts that several systems share.
const SHARED: &[&str] = &["list", "on-flash"];

/// The crates, the lowest level first. A crate depends on crates of lower levels alone.
const CRATES: &[&[&str]] = &[
    &[
        "runtime",
        "format",
        "protocol",
        "workload",
        "architecture",
        "bench-limit",
    ],
    &["device"],
    &["emulated", "index"],
    &["engine"],
    &["checker", "flowstone", "on-flash", "server"],
    &[SYSTEM],
    &["cli", "sessions", "systems"],
    &["lab"],
    &["program"],
];

/// The top-level modules of `engine` (files and folders of its `src/`), the lowest layer first. A module
/// imports from lower layers and from itself, never from other modules of its layer or from above.
const ENGINE_MODULES: &[&[&str]] = &[
    &["counter", "history", "sync"],
    &["key"],
    &["store"],
    &["in_flight", "settings"],
    &["admission", "durability"],
    &["reclaim"],
    &["placement"],
    &["config", "flash"],
    &["preset"],
    &["dram"],
    &["partition"],
    &["tiers"],
    &["background"],
    &["cache"],
    &["lifecycle"],
    &["inspect"],
    &["lib"],
];

#[test]
fn crates_depend_on_lower_levels_alone() {
    let levels: BTreeMap<&str, usize> = CRATES
        .iter()
        .enumerate()
        .flat_map(|(level, names)| names.iter().map(move |name| (*name, level)))
        .collect();
    let crates = crates();
    let system = |name: &str| crates.get(name).and_then(|folder| system_of(folder));
    let level_of = |name: &str| {
        let name = system(name).map_or(name, |_| SYSTEM);
        levels.get(name).copied()
    };
    let mut wrong = Vec::new();
    for (name, folder) in &crates {
        let Some(level) = level_of(name) else {
            wrong.push(format!("{name} has no level: name it in CRATES"));
            continue;
        };
        for dependency in dependencies(&folder.join("Cargo.toml")) {
            let is_of_one_system = system(name).is_some() && system(name) == system(&dependency);
            if level_of(&dependency).is_some_and(|below| below >= level) && !is_of_one_system {
                wrong.push(format!(
                    "{name} depends on {dependency}, which is not below it"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The product compiles without the systems of the papers, the laboratory and the checkers.
#[test]
fn crates_depend_on_their_own_folder_and_lower_folders_alone() {
    let crates = crates();
    let level_of = |name: &str| {
        let folder = crates.get(name)?;
        FOLDERS
            .iter()
            .position(|known| folder.starts_with(root().join(known)))
    };
    let mut wrong = Vec::new();
    for (name, folder) in &crates {
        for dependency in dependencies(&folder.join("Cargo.toml")) {
            if level_of(&dependency) > level_of(name) {
                wrong.push(format!(
                    "{name} depends on {dependency}, whose folder is above"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The product is a workspace that builds without the folders beside it: no file of it is taken from there.
#[test]
fn no_path_leaves_the_product() {
    let product = root().join("product");
    let mut files = Vec::new();
    for extension in ["rs", "toml"] {
        files::each_file(&product, extension, &mut |path, text| {
            files.push((path.to_owned(), text));
        });
    }
    assert!(files.len() > 100, "the sources are found");
    let mut wrong = Vec::new();
    for (path, text) in files {
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            let named = line.split('"').skip(1).step_by(2);
            for name in named.filter(|name| name.starts_with("../")) {
                let ups = name.matches("../").count();
                let below = path.strip_prefix(&product).expect("it lies in the product");
                if ups >= below.components().count() {
                    wrong.push(format!("{} names `{name}`", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A system can be taken out, with its entry in the list: no other manifest names its crates, and no source outside of its
/// folder includes a file of it.
#[test]
fn only_the_list_names_the_systems() {
    let list = root().join("systems/list");
    let crates = crates();
    let mut wrong = Vec::new();
    let mut seen = 0;
    each_manifest(&mut |path, text| {
        for name in named_crates(text) {
            let Some(system) = crates.get(name).and_then(|folder| system_of(folder)) else {
                continue;
            };
            seen += 1;
            if !path.starts_with(&system) && !path.starts_with(&list) {
                wrong.push(format!("{} names the crate {name}", path.display()));
            }
        }
    });
    assert!(seen > 0, "the list names the systems");
    for folder in FOLDERS {
        files::each_file(&root().join(folder), "rs", &mut |path, text| {
            let folder = path.parent().expect("a source lies in a folder");
            for name in text.split('"').filter(|name| name.starts_with("../")) {
                let included = normal(&folder.join(name));
                let system = system_of(&included).filter(|_| included.exists());
                if system.is_some_and(|system| !path.starts_with(system)) {
                    wrong.push(format!("{} includes `{name}`", path.display()));
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_import_each_other_in_no_circle() {
    let mut wrong = String::new();
    for (name, folder) in crates() {
        for circle in circles(&imports(&folder)) {
            wrong += &format!("{name}:\n{circle}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn modules_of_the_engine_import_from_lower_layers_alone() {
    let layer_of: BTreeMap<&str, usize> = ENGINE_MODULES
        .iter()
        .enumerate()
        .flat_map(|(layer, names)| names.iter().map(move |name| (*name, layer)))
        .collect();
    let mut wrong = BTreeSet::new();
    for edge in imports(&crates()["engine"]) {
        let (from, to) = (top_module(&edge.from), top_module(&edge.to));
        let layer = |name: &str| match layer_of.get(name) {
            Some(&layer) => layer,
            None => panic!("{name} has no layer: name it in ENGINE_MODULES"),
        };
        let (above, below) = (layer(from), layer(to));
        if from != to && below >= above {
            wrong.insert(edge.to_string());
        }
    }
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "these point up:\n{}", wrong.join("\n"));
}

/// A circle is found with the imports that close it. Re-exports, declarations, strings and tests are no
/// imports.
#[test]
fn circles_are_told_from_re_exports_and_declarations() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use a::A; pub mod c;"),
        ("a.rs", "use crate::c::B; pub struct A;"),
        (
            "b.rs",
            "use super::A; pub struct B; fn f() { let _ = \"crate::a::A\"; }",
        ),
        (
            "c.rs",
            "//! [`crate::A`]\npub use crate::b::B;\n#[cfg(test)] mod tests { use crate::a::A; }",
        ),
    ];
    let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    let found = circles(&modules::edges(&files.into()));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].files, ["a.rs", "b.rs"]);
    assert_eq!(
        found[0].to_string(),
        "  circle of a.rs, b.rs\n    a.rs -> b.rs (B)\n    b.rs -> a.rs (A)\n"
    );
}

/// Returns the folders of the crates by the names of their packages, without the project's prefix.
fn crates() -> BTreeMap<String, PathBuf> {
    let mut crates = BTreeMap::new();
    each_manifest(&mut |path, text| {
        let folder = path.parent().expect("a manifest lies in a folder");
        // The fuzz targets are a workspace of their own.
        let name = package_name(text).filter(|_| folder.join("src").exists());
        if let Some(name) = name {
            crates.insert(
                name.trim_start_matches("flowstone-").to_owned(),
                folder.into(),
            );
        }
    });
    crates
}

/// Passes each manifest of the project to `each`, with its path.
fn each_manifest(each: &mut dyn FnMut(&Path, &str)) {
    let mut pass = |path: &Path, text: String| {
        if path.ends_with("Cargo.toml") {
            each(path, &text);
        }
    };
    let path = root().join("Cargo.toml");
    let text = std::fs::read_to_string(&path).expect("a manifest is readable");
    pass(&path, text);
    for folder in FOLDERS {
        files::each_file(&root().join(folder), "toml", &mut pass);
    }
}

/// Returns the root of the project.
fn root() -> PathBuf {
    normal(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// Returns the folder of the system that a path lies in.
fn system_of(path: &Path) -> Option<PathBuf> {
    let systems = root().join("systems");
    let below = path.strip_prefix(&systems).ok()?.components().next()?;
    let is_shared = SHARED.iter().any(|name| below.as_os_str() == *name);
    (!is_shared).then(|| systems.join(below))
}

/// Returns the name of a manifest's package.
fn package_name(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[package]")?;
    let line = package.lines().find(|line| line.starts_with("name ="))?;
    line.split('"').nth(1)
}

/// Returns the dependencies of a manifest outside of its tests, by the names that the manifest uses.
fn dependencies(manifest: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(manifest).expect("a manifest is readable");
    let mut section = "";
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if section.ends_with("dependencies") && !section.ends_with("dev-dependencies") {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            found.push(name.trim_start_matches("flowstone-").to_owned());
        }
    }
    found
}

/// Returns the crates that the dependencies of a manifest name, those of its tests included.
fn named_crates(manifest: &str) -> impl Iterator<Item = &str> {
    let mut in_dependencies = false;
    manifest.lines().flat_map(move |line| {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        }
        let renamed = line.split_once("package = \"").map(|(_, rest)| rest);
        [
            line.split(['.', ' ', '=']).next(),
            renamed.and_then(|rest| rest.split('"').next()),
        ]
        .into_iter()
        .flatten()
        .filter(move |_| in_dependencies)
        .map(|name| name.trim_start_matches("flowstone-"))
    })
}

/// Returns the imports between the files of the crate in this folder.
fn imports(folder: &Path) -> Vec<Edge> {
    let root = folder.join("src");
    let mut files = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder of sources is readable") {
            let path = entry.expect("a folder of sources is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source is readable");
                let path = path.strip_prefix(&root).expect("it lies below the root");
                files.insert(path.to_owned(), text);
            }
        }
    }
    modules::edges(&files)
}

/// Returns the file or folder of `src/` that a file is or lies in, without an ending.
fn top_module(file: &str) -> &str {
    file.split('/')
        .next()
        .unwrap_or(file)
        .trim_end_matches(".rs")
}
