//! Programs in C that tests compare with.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// Compiles a C file in `dir`, and returns the program, which has the name of the file. `options` are those of the
/// compiler after the file: the libraries, such as `-lpcp`.
///
/// # Panics
/// When there is no compiler, or it fails.
#[track_caller]
pub fn compile(source: impl AsRef<Path>, dir: impl AsRef<Path>, options: &[&str]) -> PathBuf {
    let source = source.as_ref();
    let program = dir.as_ref().join(source.file_stem().expect("the name of a C file"));
    let status = Command::new("cc").args(["-O1", "-w", "-o"]).args([&program, source]).args(options).status();
    assert!(status.expect("a C compiler").success(), "{}: PCP's development packages are needed", source.display());
    program
}

/// Runs a program with an input, and returns its standard output.
///
/// # Panics
/// When the program cannot be started, or its output is not UTF-8.
#[track_caller]
pub fn answers(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program that starts");
    let mut stdin = child.stdin.take().expect("a piped standard input");
    let output = thread::scope(|scope| {
        // A program may end before it has read everything.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().expect("the program's output")
    });
    String::from_utf8(output.stdout).expect("an output in UTF-8")
}
