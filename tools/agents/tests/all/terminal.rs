//! The program in a terminal.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

struct Terminal {
    child: Child,
    screen: File,
    /// Output read since the last text that [`Terminal::until`] found.
    seen: Vec<u8>,
    /// Keeps the terminal open when the program has ended.
    inside: OwnedFd,
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

impl Terminal {
    /// Starts the program with agent `derived`. Only one agent: another agent could move its lines on the screen, and
    /// then only the changed characters would be drawn.
    fn start() -> Terminal {
        Terminal::with(&["-t", "0.1", "derived"], "xterm-256color")
    }

    fn with(arguments: &[&str], term: &str) -> Terminal {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // No other program may inherit this side, which would keep the terminal open.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let pty = openpty(&size, None).unwrap();
        fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        fcntl(&pty.slave, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let inside = || pty.slave.try_clone().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_pcp-agents"))
            .args(arguments)
            .env("TERM", term)
            .env("LC_ALL", "C.UTF-8")
            .env("PCP_CONF", "/nonexistent/pcp.conf")
            .stdin(inside())
            .stdout(inside())
            .stderr(inside())
            .spawn()
            .unwrap();
        Terminal { child, screen: pty.master.into(), seen: Vec::new(), inside: pty.slave }
    }

    /// Reads the screen until a text appears. Returns the output up to the end of the text.
    fn until(&mut self, text: &str) -> String {
        // The screen changes all the time, so a timeout between two changes would not end the test.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.seen.windows(text.len()).position(|part| part == text.as_bytes()) {
                return String::from_utf8_lossy(&self.seen.drain(..at + text.len()).collect::<Vec<_>>()).into_owned();
            }
            let missing = || format!("no {text:?} in {:?}", String::from_utf8_lossy(&self.seen));
            assert!(Instant::now() < deadline, "{}", missing());
            let mut ready = [PollFd::new(self.screen.as_fd(), PollFlags::POLLIN)];
            assert_ne!(poll(&mut ready, 60_000u16).unwrap(), 0, "{}", missing());
            let mut some = [0; 4096];
            let n = self.screen.read(&mut some).unwrap();
            self.seen.extend_from_slice(&some[..n]);
        }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.inside).unwrap().local_flags.contains(LocalFlags::ICANON)
    }

    /// Waits for the program to end, and checks that the terminal is restored.
    fn end(mut self) -> Option<i32> {
        self.until(LEAVE);
        let status = self.child.wait().unwrap();
        assert!(!self.is_raw());
        status.code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn q_ends_it() {
    let mut terminal = Terminal::start();
    assert!(terminal.until("derived.color.double").contains(ENTER));
    assert!(terminal.is_raw());
    terminal.screen.write_all(b"q").unwrap();
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn control_c_ends_it() {
    let mut terminal = Terminal::start();
    terminal.until("derived.color.total");
    terminal.screen.write_all(b"\x03").unwrap();
    assert_eq!(terminal.end(), Some(0));
}

/// If nothing can be shown, the view ends by itself. Its reason stays on the terminal.
#[test]
fn the_reason_of_an_agent_that_ends_at_once_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let names = dir.path().join("names");
    std::fs::write(&names, "root {\n  x 1:1:1\n}\n").unwrap();
    let names = names.to_str().unwrap();
    for command in ["echo no such disk >&2; exit 3", "echo no such disk >&2; read first"] {
        let mut terminal = Terminal::with(&["--pmns", names, "--", "sh", "-c", command], "xterm-256color");
        terminal.until(LEAVE);
        terminal.until("its log: no such disk");
        assert_eq!(terminal.child.wait().unwrap().code(), Some(1));
    }
    // An agent of this framework that does not begin at all.
    let mut terminal =
        Terminal::with(&["--", env!("CARGO_BIN_EXE_pcp-agents"), "agent", "simple", "-z"], "xterm-256color");
    assert!(!terminal.until("pcp-agents: pmdasimple: unexpected argument '-z' found").contains(ENTER));
    assert_eq!(terminal.child.wait().unwrap().code(), Some(1));
}

/// A terminal that cannot move its cursor gets lines.
#[test]
fn a_dumb_terminal_has_no_screen() {
    let mut terminal = Terminal::with(&["-t", "0.1", "-s", "1", "derived"], "dumb");
    assert!(!terminal.until("derived.color.total").contains('\x1b'));
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_signal_ends_it() {
    let mut terminal = Terminal::start();
    terminal.until("derived.color.total");
    kill(Pid::from_raw(terminal.child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(terminal.end(), Some(128 + 15));
}

/// The program gets no signal, because the terminal is not its controlling one. It must not read the end of the
/// terminal in a loop.
#[test]
fn the_end_of_the_terminal_ends_it() {
    let mut terminal = Terminal::start();
    terminal.until("derived.color.total");
    let Terminal { child, screen, inside, .. } = &mut terminal;
    let null = || File::open("/dev/null").unwrap();
    (*screen, *inside) = (null(), null().into());
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it has not ended");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(1));
}
