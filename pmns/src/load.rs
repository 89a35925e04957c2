//! Loading of name spaces from files.

use crate::cpp::Preprocessor;
use crate::error::Error;
use crate::files::{FileSystem, Files};
use crate::{Tree, parse};
use std::path::{Path, PathBuf};

/// Reads name spaces, as pmLoadNameSpace(3) and pmLoadASCIINameSpace(3) do.
///
/// The loader preprocesses the text as pmcpp(1) does. It tries the path of an included file as it is, then relative to
/// the directory of the first file, then relative to each [`Loader::include_dir`].
///
/// Loading stops at the first problem. Exceeding one of these limits is a problem, too: 4,096 bytes in a line after
/// macro substitution, 5 files open at a time, 1,000 included files and 64 MiB of included text in total.
#[must_use = "it loads nothing until Loader::load"]
pub struct Loader<'a> {
    files: &'a dyn Files,
    include_dirs: Vec<PathBuf>,
    unique: bool,
}

impl Default for Loader<'_> {
    fn default() -> Self {
        Loader::new()
    }
}

impl Loader<'static> {
    /// Creates a loader that reads from the file system.
    pub fn new() -> Self {
        Loader::from_files(&FileSystem)
    }
}

impl<'a> Loader<'a> {
    /// Creates a loader that reads from `files`.
    pub fn from_files(files: &'a dyn Files) -> Self {
        Loader { files, include_dirs: Vec::new(), unique: false }
    }

    /// Adds a directory to search for included files. libpcp searches one, `$PCP_VAR_DIR/pmns`.
    pub fn include_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.include_dirs.push(dir.into());
        self
    }

    /// Refuses two names with the same PMID, which are allowed by default. Roots of dynamic names may always have
    /// several names.
    pub fn unique_pmids(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Loads the name space of a file.
    ///
    /// # Errors
    ///
    /// - [`Error::Open`] when the file cannot be read,
    /// - [`Error::Problems`] when its text is malformed.
    pub fn load(&self, path: &Path) -> Result<Tree, Error> {
        let text = self.files.read(path).map_err(|source| Error::Open { path: path.into(), source })?;
        self.parse(text, path)
    }

    /// Loads the name space of a text as if it were the content of the file `path`, which need not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Problems`] when the text is malformed.
    pub fn parse(&self, text: impl Into<Vec<u8>>, path: &Path) -> Result<Tree, Error> {
        let mut dirs: Vec<PathBuf> = path.parent().map(Path::to_path_buf).into_iter().collect();
        dirs.extend(self.include_dirs.iter().cloned());
        let cpp = Preprocessor::new(self.files, dirs, &path.to_string_lossy(), text.into());
        parse::parse(cpp, self.unique)
    }
}
