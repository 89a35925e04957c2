//! Names of attributes and services.

use crate::attribute::{key, name, port};

#[test]
fn attributes() {
    assert_eq!((name(5), name(16), name(0), name(17)), (Some("username"), Some("exclusive"), None, None));
    assert_eq!((key(b"uid"), key(b"authorize"), key(b"UID"), key(b"protocol")), (Some(11), Some(4), None, None));
}

#[test]
fn services() {
    let text = "# a comment\nssh\t\t22/tcp\t\t# Secure Shell\nhttp 80/tcp www www-http\nbad\nworse x/tcp\n";
    assert_eq!((port(text, "ssh"), port(text, "www-http")), (Some(22), Some(80)));
    assert_eq!((port(text, "Secure"), port(text, "worse"), port(text, "bad")), (None, None, None));
}
