//! Programs in C that tests compare with.

use std::ffi::OsStr;
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

/// Makes an executable file with this content and mode.
///
/// Another process writes it. If this one did, a fork by another thread could hold the file open for writing for a
/// moment, and a start of the program would fail with `ETXTBSY`.
///
/// # Panics
/// When the file cannot be written.
#[track_caller]
pub fn executable(path: impl AsRef<Path>, content: impl AsRef<[u8]>, mode: u32) {
    let mut command = Command::new("install");
    command.arg("-m").arg(format!("{mode:o}")).arg("/dev/stdin").arg(path.as_ref()).stdin(Stdio::piped());
    let mut child = command.spawn().expect("install");
    child.stdin.take().expect("a piped standard input").write_all(content.as_ref()).expect("the content is written");
    assert!(child.wait().expect("the end of install").success(), "{}", path.as_ref().display());
}

/// Copies a program, as [`executable`] writes one.
///
/// # Panics
/// When the program cannot be copied.
#[track_caller]
pub fn copy_executable(from: impl AsRef<Path>, to: impl AsRef<Path>, mode: u32) {
    let mut command = Command::new("install");
    let status = command.arg("-m").arg(format!("{mode:o}")).arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(status.expect("install").success(), "{}", to.as_ref().display());
}

/// Runs a program on a terminal of its own (script(1)), without input. Returns what it writes there.
///
/// # Panics
/// When there is no script(1), or the output is not UTF-8.
#[track_caller]
pub fn on_terminal<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> String {
    let quoted = |word: &OsStr| format!("'{}'", word.to_str().expect("an argument in UTF-8").replace('\'', r"'\''"));
    let line = arguments.into_iter().fold(quoted(program.as_ref()), |line, word| line + " " + &quoted(word.as_ref()));
    let mut script = Command::new("script");
    let output = script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().expect("script(1)");
    String::from_utf8(output.stdout).expect("UTF-8")
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
