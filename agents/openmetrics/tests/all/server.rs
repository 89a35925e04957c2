//! HTTP servers for the sources of an agent.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server that answers each request with the bytes that a function returns, and keeps the requests.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Server {
        Server::at(([127, 0, 0, 1], 0).into(), move |stream, _| answer(stream))
    }

    /// Starts a server at an address, whose answers depend on the request.
    pub(crate) fn at(addr: SocketAddr, answer: impl Fn(&mut TcpStream, &str) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(addr).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                thread::spawn(move || serve(stream.unwrap(), &*answer, &kept));
            }
        });
        Server { port, requests }
    }

    /// Starts a server for a document that can be changed.
    pub(crate) fn of(document: &Arc<Mutex<String>>) -> Server {
        let document = Arc::clone(document);
        Server::new(move |stream| {
            let text = document.lock().unwrap().clone();
            send(stream, "200 OK", "Content-Type: text/plain\r\n", text.as_bytes());
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&mut TcpStream, &str), kept: &Mutex<Vec<String>>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(len) => request.extend_from_slice(&buffer[..len]),
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    kept.lock().unwrap().push(request.clone());
    answer(&mut stream, &request);
}

/// Sends an answer, after which the connection is closed.
pub(crate) fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    // The agent may have given up.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}
