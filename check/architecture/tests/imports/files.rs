//! The files of a folder.

use std::path::Path;

pub(crate) fn each_file(folder: &Path, ending: &str, each: &mut dyn FnMut(&Path, String)) {
    for entry in std::fs::read_dir(folder).expect("a folder is readable") {
        let path = entry.expect("a folder is readable").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                each_file(&path, ending, each);
            }
        } else if path.extension().is_some_and(|found| found == ending) {
            let text = std::fs::read_to_string(&path).expect("a file is readable");
            each(&path, text);
        }
    }
}
