//! Redirections: where they lead, and who is sent the secrets of a source's file.

use ureq::http::{HeaderMap, StatusCode, Uri, header};

use crate::url_file::{has_valid_host, quoted};

/// Returns the address that an answer redirects to, as the server has sent it.
pub(crate) fn location(status: StatusCode, headers: &HeaderMap) -> Option<&[u8]> {
    let is_redirection = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    headers.get(header::LOCATION).filter(|_| is_redirection).map(|value| value.as_bytes())
}

/// Returns the URL of a redirection from `base` (RFC 3986, 5.2).
///
/// # Errors
/// A text without the address.
pub(crate) fn target(base: &Uri, location: &[u8]) -> Result<String, String> {
    let malformed = || "the address of a redirection is not valid".to_owned();
    let location = std::str::from_utf8(location).map_err(|_| malformed())?.trim();
    let location = location.split_once('#').map_or(location, |(location, _)| location);
    let (scheme, authority) = (base.scheme_str().unwrap_or("http"), base.authority().ok_or_else(malformed)?);
    let (before, query) = location.split_at(location.find('?').unwrap_or(location.len()));
    let first = before.split('/').next().unwrap_or_default();
    let url = if let Some((other, _)) = first.split_once(':') {
        let is_known = ["http", "https"].iter().any(|known| other.eq_ignore_ascii_case(known));
        if !is_known || !before.get(other.len()..).is_some_and(|rest| rest.starts_with("://")) {
            return Err("a redirection leads to another protocol than HTTP".into());
        }
        let rest = location.get(other.len()..).unwrap_or_default();
        format!("{}{rest}", other.to_ascii_lowercase())
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if before.is_empty() {
        let query = if query.is_empty() {
            base.query().map_or(String::new(), |query| format!("?{query}"))
        } else {
            query.to_owned()
        };
        format!("{scheme}://{authority}{}{query}", base.path())
    } else {
        let above = base.path().rsplit_once('/').map_or("", |(above, _)| above);
        let path = if before.starts_with('/') { before.to_owned() } else { format!("{above}/{before}") };
        format!("{scheme}://{authority}{}{query}", without_dots(&path))
    };
    let url = quoted(&url);
    let is_valid = has_valid_host(&url) && url.parse::<Uri>().is_ok();
    if is_valid { Ok(url) } else { Err(malformed()) }
}

/// Removes the segments `.` and `..` of an absolute path.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for segment in &segments {
        match *segment {
            "." => {}
            ".." => _ = kept.pop(),
            segment => kept.push(segment),
        }
    }
    let is_directory = segments.last().is_some_and(|last| matches!(*last, "." | ".."));
    format!("/{}{}", kept.join("/"), if is_directory && !kept.is_empty() { "/" } else { "" })
}

/// Returns whether what is secret for `from` may be sent to `to`: the same host and port with the same protocol, or with
/// HTTPS in place of HTTP, each with its usual port.
pub(crate) fn is_same_server(from: &Uri, to: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    let of = |uri: &Uri| {
        let is_https = uri.scheme_str() == Some("https");
        (is_https, uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }))
    };
    host(from) == host(to) && (of(from) == of(to) || (of(from), of(to)) == ((false, 80), (true, 443)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let base: Uri = "http://host:1/a/b?q=1".parse().unwrap();
        for (location, url) in [
            ("/x", "http://host:1/x"),
            ("x?y=1", "http://host:1/a/x?y=1"),
            ("../x/./y/..", "http://host:1/x/"),
            ("../../../..", "http://host:1/"),
            ("?z", "http://host:1/a/b?z"),
            ("", "http://host:1/a/b?q=1"),
            ("#fragment", "http://host:1/a/b?q=1"),
            ("//other/x", "http://other/x"),
            ("HTTPS://other/a b?c=d:e/f#g", "https://other/a%20b?c=d:e/f"),
            ("/x?to=http://y", "http://host:1/x?to=http://y"),
            ("a/b:c", "http://host:1/a/a/b:c"),
        ] {
            assert_eq!(target(&base, location.as_bytes()).unwrap(), url, "{location}");
        }
        for location in ["file:///etc/passwd", "unix:///x", "ftp://x/", "mailto:x", "http:x", "javascript:1", "a:b/c"] {
            assert!(target(&base, location.as_bytes()).unwrap_err().contains("protocol"), "{location}");
        }
        for location in [&b"http://"[..], b"http:///x", b"http://s3cret t/x", b"//", b"\xff", b"http://x:y/"] {
            let reason = target(&base, location).unwrap_err();
            assert_eq!(reason, "the address of a redirection is not valid", "{}", location.escape_ascii());
        }
    }

    #[test]
    fn servers() {
        let same = |from: &str, to: &str| is_same_server(&from.parse().unwrap(), &to.parse().unwrap());
        for (from, to, is_same) in [
            ("http://host/a", "http://HOST:80/b", true),
            ("http://host:1/a", "http://host:1/b", true),
            ("http://host/", "https://host/", true),
            ("https://host/", "http://host/", false),
            ("http://host:1/", "https://host:1/", false),
            ("http://host:1/", "http://host:2/", false),
            ("http://host/", "http://host.other/", false),
            ("http://host/", "http://host:x@other/", false),
        ] {
            assert_eq!(same(from, to), is_same, "{from} {to}");
        }
    }
}
