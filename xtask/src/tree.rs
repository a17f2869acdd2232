//! The files of the workspace as a value, so that rules about them can be tested without a disk.

use std::{collections::BTreeMap, fs, io, path::Path};

use crate::Failure;

/// Every file below the root, by its path with `/`, with its text when it has one.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

/// Folders that hold nothing we wrote.
const SKIPPED: &[&str] = &["target", ".git", "node_modules"];
/// Files above this size are data, whatever they contain.
const MAX_TEXT: u64 = 4 << 20;

impl Tree {
    /// Reads the tree at `root`. Links are not followed.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self::default();
        tree.read_folder(root, "")
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", root.display())))?;
        Ok(tree)
    }

    /// A tree made of these files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|&(path, text)| (path.into(), Some(text.into())));
        Self { files: files.collect() }
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.read_folder(&entry.path(), &format!("{prefix}{name}/"))?;
            } else if kind.is_file() && name != ".git" {
                let small = entry.metadata()?.len() <= MAX_TEXT;
                let text = if small { String::from_utf8(fs::read(entry.path())?).ok() } else { None };
                self.files.insert(format!("{prefix}{name}"), text);
            }
        }
        Ok(())
    }

    /// Every path, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Every file that has a text, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// True for a file, and for a folder that has one.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.contains_key(path) || self.paths().any(|file| file.starts_with(&folder))
    }
}
