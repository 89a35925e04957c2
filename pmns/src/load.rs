use crate::cpp::Preprocessor;
use crate::error::Error;
use crate::{Tree, parse};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Reads name spaces (pmLoadNameSpace(3), pmLoadASCIINameSpace(3)).
///
/// The text goes through the preprocessor of pmcpp(1). An included file is looked for as it is
/// named, then in the directory of the first file, then in [`Loader::include_dir`].
///
/// Bad text ends in an error at the first problem, with these limits: 4,096 bytes to a line after
/// substitution of macros, 5 files open at a time, 1,000 files included.
pub struct Loader<'a> {
    files: &'a dyn Files,
    include_dirs: Vec<PathBuf>,
    unique: bool,
}

/// Where a [`Loader`] gets texts from.
pub trait Files {
    /// The content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The output of a command of `#shell`.
    fn shell(&self, command: &str) -> io::Result<Vec<u8>>;
}

/// The file system. Runs the commands of `#shell` with `sh`, whatever their exit code.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl Files for FileSystem {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // To pmcpp, what is no file or character device is not there. A pipe might wait for ever.
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_char_device() {
            const ENOENT: i32 = 2;
            return Err(io::Error::from_raw_os_error(ENOENT));
        }
        std::fs::read(path)
    }

    fn shell(&self, command: &str) -> io::Result<Vec<u8>> {
        let mut sh = Command::new("/bin/sh");
        Ok(sh.arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?.stdout)
    }
}

impl Default for Loader<'_> {
    fn default() -> Self {
        Loader::new()
    }
}

impl Loader<'static> {
    /// A loader from the file system.
    pub fn new() -> Self {
        Loader::from_files(&FileSystem)
    }
}

impl<'a> Loader<'a> {
    /// A loader from other files.
    pub fn from_files(files: &'a dyn Files) -> Self {
        Loader { files, include_dirs: Vec::new(), unique: false }
    }

    /// Adds a directory of files to include. libpcp has one, `$PCP_VAR_DIR/pmns`.
    pub fn include_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.include_dirs.push(dir.into());
        self
    }

    /// Whether two names of one PMID are an error, those of dynamic names aside.
    pub fn unique_pmids(mut self, unique: bool) -> Self {
        self.unique = unique;
        self
    }

    /// The name space of a file.
    pub fn load(&self, path: &Path) -> Result<Tree, Error> {
        let text = self.files.read(path).map_err(|source| Error::Open { path: path.into(), source })?;
        self.parse(text, path)
    }

    /// The name space of a text that is, or might be, the content of the file `path`.
    pub fn parse(&self, text: impl Into<Vec<u8>>, path: &Path) -> Result<Tree, Error> {
        let mut dirs: Vec<PathBuf> = path.parent().map(Path::to_path_buf).into_iter().collect();
        dirs.extend(self.include_dirs.iter().cloned());
        let cpp = Preprocessor::new(self.files, dirs, &path.to_string_lossy(), text.into());
        parse::parse(cpp, self.unique)
    }
}
