//! A minimal agent that counts trace events.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use pcp_trace::protocol::{self, Pdu};

/// Counts the trace events of a connection until the client closes it.
pub(crate) fn serve(mut stream: TcpStream) -> u64 {
    stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
    let (mut bytes, mut count) = (Vec::new(), 0);
    loop {
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return count,
            Ok(n) => bytes.extend_from_slice(&more[..n]),
        }
        while let Some((Pdu::Data(data), len)) = protocol::next(&bytes).unwrap() {
            if data.reply {
                stream.write_all(&protocol::encode_ack(data.kind as i32, 1)).unwrap();
            }
            count += 1;
            bytes.drain(..len);
        }
    }
}
