//! Paths with white space become single words.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use testkit::one_word;

#[test]
fn a_path_with_spaces_is_reached_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let spaced = dir.path().join("für Gäste/target dir");
    fs::create_dir_all(&spaced).unwrap();
    fs::write(spaced.join("pmdax"), "x").unwrap();
    let word = one_word(spaced.join("pmdax"));
    assert!(!word.to_str().unwrap().contains(char::is_whitespace), "{word:?}");
    assert_eq!(fs::read_to_string(&word).unwrap(), "x");
    assert_eq!(one_word(spaced.join("pmdax")), word);
    for plain in ["/usr/bin/pmdax", "pmdax", "-d", "", "a b"] {
        assert_eq!(one_word(plain), Path::new(plain));
    }
    fs::remove_file(word.parent().unwrap()).unwrap();
}

#[test]
#[should_panic(expected = "assertion")]
fn a_link_to_somewhere_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spaced = dir.path().join("a b");
    fs::create_dir(&spaced).unwrap();
    let word = one_word(spaced.join("pmdax"));
    let link = word.parent().unwrap();
    fs::remove_file(link).unwrap();
    std::os::unix::fs::symlink("/tmp", link).unwrap();
    let _remove = Remove(link);
    one_word(spaced.join("pmdax"));
}

struct Remove<'a>(&'a Path);

impl Drop for Remove<'_> {
    fn drop(&mut self) {
        _ = fs::remove_file(self.0);
    }
}
