//! Line editing and history on a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use tempfile::TempDir;
use testkit::Pcp;

use crate::sessions::OURS;

/// Session on a terminal.
struct Terminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    shown: String,
    /// Length of the output up to the last text that [`Terminal::wait_for`] has found.
    seen: usize,
    _dir: TempDir,
}

impl Terminal {
    fn start(mut command: Command, rc: Option<&str>, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("root"), "root {\n  one 1:1:1\n}\n").unwrap();
        if let Some(rc) = rc {
            fs::write(dir.path().join(".dbpmdarc"), rc).unwrap();
        }
        let ends = openpty(None, None).unwrap();
        let end = || Stdio::from(ends.slave.try_clone().unwrap());
        command.args(["-n", "root"]).args(options).current_dir(dir.path()).env("TERM", "xterm").env_remove("INPUTRC");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(command);
        drop(ends.slave);
        let keys = File::from(ends.master);
        let mut reader = keys.try_clone().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            // Reading fails when the session has closed its end of the terminal.
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_owned()).is_err() {
                    break;
                }
            }
        });
        Terminal { child, keys, output, shown: String::new(), seen: 0, _dir: dir }
    }

    /// Waits until the output has a text, after the text of the previous call.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let new = &self.shown[self.seen..];
            if let Some(at) = new.find(text) {
                self.seen += at + text.len();
                return;
            }
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("waited in vain for {text:?}:\n{new}"),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Returns the output up to its end, and the exit code.
    fn finish(mut self) -> (String, Option<i32>) {
        let end = Instant::now() + Duration::from_secs(20);
        while let Ok(bytes) = self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        let _ = self.child.kill();
        (self.shown.clone(), self.child.wait().unwrap().code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const UP: &str = "\x1b[A";
const LEFT: &str = "\x1b[D";
const HOME: &str = "\x01";
const END_OF_INPUT: &str = "\x04";

/// Edits lines and recalls them from the history. The output of each command shows which command was executed.
fn edit(command: Command) {
    let mut terminal = Terminal::start(command, None, &[]);
    terminal.wait_for("dbpmda> ");
    // The keys write "timer on", with the cursor moved back and forth.
    terminal.press(&format!("imer off\x08\x08n{HOME}t\r"));
    terminal.press("status\r");
    terminal.wait_for("Timer:                  on");
    terminal.wait_for("Dump Instance Profile");
    terminal.wait_for("dbpmda> ");
    // An empty line does not enter the history.
    terminal.press("\r\r");
    terminal.press(&format!("{UP}{UP}\x08ff\r"));
    terminal.press(&format!("{UP}{UP}\r"));
    terminal.wait_for("Timer:                  off");
    terminal.press(&format!("desc oXne{LEFT}{LEFT}\x08\r"));
    terminal.wait_for("No PMDA currently opened");
    terminal.press("blah blah\r");
    terminal.wait_for("            ^ at or near here");
    // The key ends the input only when the program waits for a line.
    terminal.wait_for("dbpmda> ");
    terminal.press(END_OF_INPUT);
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn editing() {
    edit(Command::new(OURS));
}

/// The keys have the same meaning in PCP's dbpmda.
#[test]
#[ignore = "needs PCP"]
fn editing_as_in_c() {
    edit(Pcp::required().command("dbpmda"));
}

/// The commands of `.dbpmdarc` are echoed before the terminal is read.
fn rc(command: Command) {
    let mut terminal = Terminal::start(command, Some("timer on\nblah\n"), &[]);
    terminal.wait_for(".dbpmdarc> timer on\r\n.dbpmdarc> blah\r\n              ^ at or near here");
    terminal.wait_for("dbpmda> ");
    terminal.press("status\r");
    terminal.wait_for("Timer:                  on");
    terminal.press("quit\r");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn rc_before_the_terminal() {
    rc(Command::new(OURS));
}

#[test]
#[ignore = "needs PCP"]
fn rc_before_the_terminal_as_in_c() {
    rc(Pcp::required().command("dbpmda"));
}

#[test]
fn arguments_steer_no_terminal() {
    for arguments in [["check", "--\x1b[2Jb"], ["check", "--limit=\x1b[2Jb"], ["\x1b[2Jb", "-f"]] {
        let said = testkit::on_terminal(OURS, arguments);
        assert!(!said.contains('\x1b'), "{said:?}");
    }
}
