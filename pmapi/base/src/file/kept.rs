//! Files and sockets that a library keeps open in a program that may close them.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::stat::fstat;

use super::off_stdio;

/// A file or socket that a library keeps open, in a program that may close its descriptor.
///
/// Many programs close all descriptors that they do not know, for example when they become daemons. The kernel gives
/// the numbers of closed descriptors to the files that the program opens next. A library that goes on to use such a
/// number would read, overwrite or close a file of the program. Therefore [`get`](Kept::get) checks that the descriptor
/// still belongs to the library's file, and so does the drop before it closes the descriptor.
///
/// The check compares device and inode number, in one call of fstat(2). It does not protect from another thread that
/// closes the descriptor between the check and the use.
#[derive(Debug)]
pub struct Kept<F: AsFd> {
    /// `None` only while it is dropped.
    file: Option<F>,
    id: (u64, u64),
}

impl<F: AsFd> Kept<F> {
    /// Keeps an open file or socket, at a descriptor of at least 3 ([`off_stdio`]).
    ///
    /// # Errors
    /// Errors of fcntl(2) and fstat(2).
    pub fn new(file: F) -> io::Result<Kept<F>>
    where
        F: From<OwnedFd>,
    {
        let file = off_stdio(file)?;
        match id(&file) {
            Ok(id) => Ok(Kept { file: Some(file), id }),
            Err(e) => {
                // The program has closed the descriptor already, and may get it for another file.
                mem::forget(file);
                Err(e)
            }
        }
    }

    /// Returns the file or socket.
    ///
    /// # Errors
    /// `EBADF` if the program has closed its descriptor.
    pub fn get(&self) -> io::Result<&F> {
        self.file.as_ref().filter(|file| self.is(file)).ok_or_else(|| Errno::EBADF.into())
    }

    /// Returns the device and the inode number of the file, also after its descriptor was closed.
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    fn is(&self, file: &F) -> bool {
        id(file).is_ok_and(|id| id == self.id)
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between systems")]
fn id(file: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

impl<F: AsFd> Drop for Kept<F> {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // The descriptor of another file belongs to the program.
        if self.is(&file) { drop(file) } else { mem::forget(file) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use nix::unistd::dup2_raw;

    use super::*;

    /// Puts another file at the descriptor, as if the program had closed the descriptor and opened the file.
    #[allow(unsafe_code, reason = "dup2(2) at the descriptor of another file")]
    fn take_place(of: &impl AsFd, file: &File) {
        // SAFETY: the `Kept` that owns the descriptor notices the exchange.
        let fd = unsafe { dup2_raw(file, of.as_fd().as_raw_fd()) }.unwrap();
        mem::forget(fd);
    }

    #[test]
    fn a_descriptor_that_belongs_to_another_file_is_not_used_nor_closed() {
        let dir = tempfile::tempdir().unwrap();
        let create = |name: &str| File::create_new(dir.path().join(name)).unwrap();
        let other = create("other");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Kept::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        let file = Kept::new(create("own")).unwrap();
        let id = file.id();
        let numbers = [file.get().unwrap().as_raw_fd(), socket.get().unwrap().as_raw_fd()];
        take_place(file.get().unwrap(), &other);
        take_place(socket.get().unwrap(), &other);
        assert!(file.get().is_err() && socket.get().is_err());
        assert_eq!(file.id(), id);
        drop((file, socket));
        for number in numbers {
            let path = format!("/proc/self/fd/{number}");
            assert_eq!(std::fs::read_link(path).unwrap(), dir.path().join("other"), "it is still open");
        }
    }

    #[test]
    fn a_descriptor_is_closed_with_its_file() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Kept::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        assert!(socket.get().is_ok());
        drop(socket);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}
