//! Configuration of a source: a file whose first line is the URL. The file beside a script has only the lines after the
//! URL.

use std::borrow::Cow;
use std::time::Duration;

use pmapi::interval;
use regex::{Regex, RegexBuilder};

use crate::access::Access;

/// Longest time that can be set. The clock cannot represent much longer ones.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Number of URLs within each other in which users and passwords are found.
const NESTED: usize = 4;

/// Most lines `FILTER` and `METADATA` of a file. Each has a regular expression, which may need 1 MiB.
const PATTERNS: usize = 1000;

/// The content of a `.url` file.
#[derive(Clone, Debug, Default)]
pub(crate) struct UrlFile {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) access: Access,
    pub(crate) format: Format,
    /// Lines without effect, each with the reason.
    pub(crate) warnings: Vec<(usize, String)>,
}

/// Format that is requested from an HTTP server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Format {
    /// The server's preferred format, as with PCP's agent.
    #[default]
    Any,
    OpenMetrics,
    Prometheus,
}

/// Rules for converting the metrics of a document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) filters: Filters,
    pub(crate) metadata: Vec<Metadata>,
    pub(crate) exemplars: Exemplars,
}

/// Handling of exemplars.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Exemplars {
    #[default]
    Ignored,
    /// An exemplar is a value of a metric whose name ends with `_exemplar`.
    Metrics,
}

/// A line `METADATA:`. It overrides the document's metadata of the metrics whose names match.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub(crate) pattern: Pattern,
    /// Type, instance domain, semantics and units, separated by spaces.
    pub(crate) text: String,
}

/// Limits of a source that its file sets in place of the command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    /// Longest pause after readings that did not end in time.
    pub(crate) backoff: Option<Duration>,
    pub(crate) instances: Option<usize>,
    pub(crate) bytes: Option<u64>,
}

/// The reason why a file is refused: line and text.
pub(crate) type Refused = (usize, String);

impl UrlFile {
    /// Parses a file.
    pub(crate) fn parse(text: &str) -> Result<UrlFile, Refused> {
        let text = text.trim();
        let (url, lines) = text.split_once('\n').unwrap_or((text, ""));
        // The scheme may have capital letters.
        let (scheme, rest) = url.trim_end().split_once("://").unwrap_or(("", ""));
        let url = format!("{}://{rest}", scheme.to_ascii_lowercase());
        let known = ["http://", "https://", "file://"].iter().any(|scheme| url.starts_with(scheme));
        if !known {
            return Err((1, "the first line must be a URL: http://…, https://… or file://…".into()));
        }
        if !has_valid_host(&url) {
            let reason =
                "the URL has no valid host and port; in a user or password, / is written %2F, ? %3F, and # %23";
            return Err((1, reason.into()));
        }
        let mut file = UrlFile { url, ..UrlFile::default() };
        file.lines(lines, 2)?;
        Ok(file)
    }

    /// Parses the file beside a script, which has no URL.
    pub(crate) fn parse_script(text: &str) -> Result<UrlFile, Refused> {
        let mut file = UrlFile::default();
        file.lines(text, 1)?;
        Ok(file)
    }

    /// Parses lines. `first` is the number of the first line.
    fn lines(&mut self, text: &str, first: usize) -> Result<(), Refused> {
        for (number, line) in (first..).zip(text.lines().map(str::trim_end)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(warning) = self.line(line).map_err(|reason| (number, reason))? {
                self.warnings.push((number, warning));
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<Option<String>, String> {
        let Some((keyword, rest)) = line.split_once(':') else { return Ok(Some(unknown())) };
        let rest = if keyword == "METADATA" { rest } else { rest.trim() };
        let patterns = self.rules.filters.len() + self.rules.metadata.len();
        match keyword {
            "FILTER" | "METADATA" if patterns >= PATTERNS => {
                return Err(format!("more than {PATTERNS} lines FILTER and METADATA"));
            }
            "HEADER" => {
                let (name, value) = rest.split_once(':').unwrap_or((rest, ""));
                let name: String = name.split_whitespace().collect();
                self.headers.push((name, value.trim_start().to_owned()));
            }
            "FILTER" => return self.rules.filters.add(rest),
            "METADATA" => return self.metadata(rest),
            "TIMEOUT" => self.limits.timeout = Some(time(rest)?),
            "WAIT" => self.limits.wait = Some(time_or_zero(rest)?),
            "INTERVAL" => self.limits.interval = Some(time(rest)?),
            "BACKOFF" => self.limits.backoff = Some(time_or_zero(rest)?),
            "INSTANCES" => self.limits.instances = Some(rest.parse().map_err(|_| "INSTANCES needs a number")?),
            "BYTES" => self.limits.bytes = Some(rest.parse().map_err(|_| "BYTES needs a number")?),
            "BEARER" => self.access.bearer = Some(rest.into()),
            "BASIC" => self.access.basic = Some(rest.into()),
            "AUTHORITIES" => self.access.authorities = Some(rest.into()),
            "CERTIFICATE" => self.access.certificate = Some(rest.into()),
            "KEY" => self.access.key = Some(rest.into()),
            "SOCKET" => self.access.socket = Some(rest.into()),
            "FORMAT" => {
                self.format = match rest {
                    "any" => Format::Any,
                    "openmetrics" => Format::OpenMetrics,
                    "prometheus" => Format::Prometheus,
                    _ => return Err("FORMAT must be any, openmetrics or prometheus".into()),
                }
            }
            "EXEMPLARS" => {
                self.rules.exemplars = match rest {
                    "ignore" => Exemplars::Ignored,
                    "metrics" => Exemplars::Metrics,
                    _ => return Err("EXEMPLARS must be ignore or metrics".into()),
                }
            }
            _ => return Ok(Some(unknown())),
        }
        Ok(None)
    }

    /// Parses the rest of a line `METADATA:`. Single spaces separate its words, as in PCP's agent, where two spaces
    /// make an empty word.
    fn metadata(&mut self, rest: &str) -> Result<Option<String>, String> {
        // The first word ends with the first space, so nothing may come directly after the colon.
        let Some((_, words)) = rest.split_once(' ') else {
            return Ok(Some("METADATA: needs a space and words".into()));
        };
        let (pattern, text) = words.split_once(' ').unwrap_or((words, ""));
        self.rules.metadata.push(Metadata { pattern: Pattern::new(pattern)?, text: text.to_owned() });
        Ok(None)
    }
}

fn unknown() -> String {
    "unknown entry, ignored".to_owned()
}

/// Parses a time. A time longer than [`LONGEST`] becomes [`LONGEST`].
pub(crate) fn time_or_zero(text: &str) -> Result<Duration, String> {
    interval::parse(text).map(|time| time.min(LONGEST)).map_err(|e| e.to_string())
}

/// Parses a time that is not zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match time_or_zero(text) {
        Ok(Duration::ZERO) => Err("the time must not be zero".into()),
        parsed => parsed,
    }
}

/// Returns scheme, user with password, host with port, and the rest of a URL.
fn parts(url: &str) -> (&str, &str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    (scheme, user, host, path)
}

/// Returns a URL without user and password, and these as `USER:PASSWORD` without percent-encodings, if there are any.
pub(crate) fn without_user(url: &str) -> (String, Option<Vec<u8>>) {
    let (scheme, user, host, path) = parts(url);
    let mut decoded = decoded(user);
    if !user.is_empty() && !user.contains(':') {
        decoded.push(b':');
    }
    (format!("{scheme}://{host}{path}"), Some(decoded).filter(|user| !user.is_empty()))
}

/// Replaces percent-encodings by the bytes that they stand for.
fn decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|digits| byte == b'%' && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                decoded.push(code);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

/// Returns whether a URL has a host, and whether its port, if any, is a number. `http://me:se/cret@host` is not valid:
/// part of the password would count as a path, and be shown.
pub(crate) fn has_valid_host(url: &str) -> bool {
    let (scheme, _, host, _) = parts(url);
    let end = host.rfind(']').map_or(0, |end| end + 1);
    let port = host.get(end..).unwrap_or_default().split_once(':').map(|(_, port)| port);
    scheme == "file" || !host.is_empty() && !host.starts_with(':') && port.is_none_or(is_port)
}

/// Returns whether a text is the number of a port.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Returns a URL whose path and query have percent-encodings in place of characters that URLs do not have, such as spaces,
/// quotes and braces. PCP's agent sends the same ones.
pub(crate) fn quoted(url: &str) -> String {
    let (_, _, _, path) = parts(url);
    let (before, _) = url.split_at(url.len() - path.len());
    let mut quoted = before.to_owned();
    for (at, byte) in path.bytes().enumerate() {
        let is_kept = byte.is_ascii_alphanumeric() || b"!#$&'()*+,/:;=?@~-._".contains(&byte);
        if is_kept || byte == b'%' && path.bytes().skip(at + 1).take(2).filter(u8::is_ascii_hexdigit).count() == 2 {
            quoted.push(char::from(byte));
        } else {
            quoted.push_str(&format!("%{byte:02X}"));
        }
    }
    quoted
}

/// Returns a URL without its secrets: user and password, also those of URLs within its path and query, and the values of
/// query parameters with suspicious names.
pub(crate) fn presentable(url: &str) -> String {
    let (scheme, _, host, path) = parts(url);
    if scheme == "file" {
        return url.to_owned();
    }
    // The fragment is not sent to the server.
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut shown = format!("{scheme}://{host}{}", without_users(path));
    shown.push_str(if query.is_some() { "?" } else { "" });
    for text in query.into_iter().flat_map(|query| query.split_inclusive(['&', ';'])) {
        let (text, end) = text.split_at(text.trim_end_matches(['&', ';']).len());
        shown.push_str(&parameter(text));
        shown.push_str(end);
    }
    shown
}

/// Returns a path, or the value of a parameter, without the users and passwords of URLs in it. Each segment that has an
/// `@`, as it is or percent-encoded, keeps only the text after the last one.
fn without_users(text: &str) -> Cow<'_, str> {
    if !text.contains('@') && !text.contains("40") {
        return Cow::Borrowed(text);
    }
    let mut plain = text.to_owned();
    // URLs within parameters of URLs are encoded several times.
    for _ in 0..NESTED {
        plain = String::from_utf8_lossy(&decoded(&plain)).into_owned();
    }
    if !plain.contains('@') {
        return Cow::Borrowed(text);
    }
    let segments: Vec<String> = plain
        .replace(char::is_control, "_")
        .split('/')
        .map(|segment| segment.rsplit_once('@').map_or_else(|| segment.to_owned(), |(_, host)| format!("…@{host}")))
        .collect();
    Cow::Owned(segments.join("/"))
}

/// Returns a query parameter, without its value if that is likely to be a secret.
fn parameter(text: &str) -> Cow<'_, str> {
    const SECRETS: [&str; 11] =
        ["token", "key", "secret", "pass", "pwd", "auth", "sig", "credential", "session", "jwt", "bearer"];
    // Short names, as of InfluxDB and Azure.
    const EXACT: [&str; 3] = ["p", "pw", "code"];
    let Some((name, value)) = text.split_once('=') else { return without_users(text) };
    let plain = String::from_utf8_lossy(&decoded(name)).to_ascii_lowercase();
    if EXACT.contains(&&*plain) || SECRETS.iter().any(|secret| plain.contains(secret)) {
        return Cow::Owned(format!("{name}=…"));
    }
    match without_users(value) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(value) => Cow::Owned(format!("{name}={value}")),
    }
}

/// What a filter does with a metric or label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Designation {
    Include,
    /// A label that is exported, but is not part of the instance's name.
    Optional,
    Exclude,
}

/// A regular expression that matches at the beginning of a name, as Python's `re.match` does.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

/// Largest compiled regular expression, in bytes.
const LARGEST: usize = 1 << 20;

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Pattern, String> {
        let compiled = RegexBuilder::new(&format!(r"\A(?:{text})")).size_limit(LARGEST).build();
        compiled.map(Pattern).map_err(|e| {
            // Only the last line of the error has the reason. The lines before it draw the expression.
            let reason = e.to_string();
            let reason = reason.lines().last().unwrap_or_default();
            format!("invalid regular expression {text:?}: {}", reason.strip_prefix("error: ").unwrap_or(reason))
        })
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// The filters of a source. The first filter that matches counts. Names that no filter matches are included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    metrics: Vec<(Designation, Pattern)>,
    labels: Vec<(Designation, Pattern)>,
}

impl Filters {
    /// Adds the filter `INCLUDE|EXCLUDE|OPTIONAL METRIC|LABEL PATTERN`. Any other first word means `EXCLUDE`, and a
    /// filter with any other second word matches nothing, as in PCP's agent. Returns a warning in these cases.
    pub(crate) fn add(&mut self, text: &str) -> Result<Option<String>, String> {
        let mut words = text.split_whitespace();
        let (Some(first), Some(kind)) = (words.next(), words.next()) else {
            return Err("a filter has three parts: INCLUDE, EXCLUDE or OPTIONAL, METRIC or LABEL, and a pattern".into());
        };
        let (designation, known) = match first {
            "INCLUDE" => (Designation::Include, true),
            "OPTIONAL" => (Designation::Optional, true),
            other => (Designation::Exclude, other == "EXCLUDE"),
        };
        let filters = match kind {
            "METRIC" => &mut self.metrics,
            "LABEL" => &mut self.labels,
            _ => return Ok(Some(format!("a filter for {kind} has no effect: only METRIC and LABEL are known"))),
        };
        let pattern: Vec<&str> = words.collect();
        filters.push((designation, Pattern::new(&pattern.join(" "))?));
        Ok((!known).then(|| format!("unknown word {first} is treated as EXCLUDE")))
    }

    /// Returns the number of filters.
    pub(crate) fn len(&self) -> usize {
        self.metrics.len() + self.labels.len()
    }

    /// Returns whether a metric is exported.
    pub(crate) fn includes_metric(&self, name: &str) -> bool {
        first(&self.metrics, name) == Designation::Include
    }

    pub(crate) fn label(&self, name: &str) -> Designation {
        first(&self.labels, name)
    }
}

fn first(filters: &[(Designation, Pattern)], name: &str) -> Designation {
    filters.iter().find(|(_, pattern)| pattern.matches(name)).map_or(Designation::Include, |(found, _)| *found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_everything() {
        let file = UrlFile::parse(
            "http://localhost:9100/metrics\r\n# a comment\n\nHEADER: Two Words: a: b:  c\nHEADER: X\n\
             FILTER:EXCLUDE METRIC go_.*\nMETADATA: m1 u32 x counter byte / sec\nTIMEOUT: 500msec\nINTERVAL: 10\n\
             WAIT: 0\nBACKOFF: 3sec\nFORMAT: openmetrics\nEXEMPLARS: metrics\nINSTANCES: 100\nBYTES: 4096\nBEARER: /etc/token\nnonsense\nOTHER: x\nMETADATA:\tm1\n",
        )
        .unwrap();
        assert_eq!(file.url, "http://localhost:9100/metrics");
        let headers = [("TwoWords", "a: b:  c"), ("X", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(file.headers, headers);
        assert!(!file.rules.filters.includes_metric("go_info"));
        assert_eq!(file.rules.metadata[0].text, "u32 x counter byte / sec");
        let Limits { timeout, wait, interval, backoff, instances, bytes } = file.limits;
        assert_eq!((timeout, interval), (Some(Duration::from_millis(500)), Some(Duration::from_secs(10))));
        assert_eq!((wait, instances, bytes), (Some(Duration::ZERO), Some(100), Some(4096)));
        assert_eq!((backoff, file.format), (Some(Duration::from_secs(3)), Format::OpenMetrics));
        assert_eq!(file.rules.exemplars, Exemplars::Metrics);
        assert_eq!(file.access.bearer, Some("/etc/token".into()));
        assert_eq!(file.warnings.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [17, 18, 19]);
    }

    #[test]
    fn times_have_a_limit() {
        let file = UrlFile::parse("http://x\nTIMEOUT: 1e18\nWAIT: 1e12 days\nINTERVAL: 9e18\nBACKOFF: 1e18\n").unwrap();
        let Limits { timeout, wait, interval, backoff, .. } = file.limits;
        assert_eq!([timeout, wait, interval, backoff], [Some(LONGEST); 4]);
        assert!(std::time::Instant::now().checked_add(LONGEST).is_some());
    }

    #[test]
    fn files_that_are_refused() {
        for (text, line) in [
            ("", 1),
            ("# a comment\nhttp://x", 1),
            ("ftp://x/y", 1),
            ("http://me:se/cret@host/x", 1),
            ("http://me:?cret@host/x", 1),
            ("http:///x", 1),
            ("https://:80/x", 1),
            ("http://[::1]:x/", 1),
            ("http://host:65536/", 1),
            ("http://x\nFILTER: EXCLUDE\n", 2),
            ("http://x\n\nFILTER: EXCLUDE METRIC [\n", 3),
            ("http://x\nTIMEOUT: 0\n", 2),
            ("http://x\nFORMAT: protobuf\n", 2),
            ("http://x\nEXEMPLARS: labels\n", 2),
            ("http://x\nINTERVAL: soon\n", 2),
            ("http://x\nMETADATA: ( u32 x counter none\n", 2),
            (&format!("http://x\n{}", "FILTER: EXCLUDE METRIC a\nMETADATA: a u32 x counter none\n".repeat(501)), 1002),
        ] {
            let (refused, reason) = UrlFile::parse(text).unwrap_err();
            assert_eq!(refused, line, "{text}");
            assert!(!reason.contains("cret"), "{reason}");
        }
        for url in ["http://[::1]/", "http://host:9100?x", "http://a:b@c@host:1", "file:///x", "http://host"] {
            assert!(UrlFile::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn urls_with_other_characters() {
        for (url, sent) in [
            ("http://host:1/a b", "http://host:1/a%20b"),
            (
                "http://host/federate?match[]={job=\"x y\",é<|}&b=1",
                "http://host/federate?match%5B%5D=%7Bjob=%22x%20y%22,%C3%A9%3C%7C%7D&b=1",
            ),
            ("http://a%20b:c@host/%41?%7b", "http://a%20b:c@host/%41?%7b"),
            ("http://host/100%?%41", "http://host/100%25?%41"),
            ("http://host?q=#f", "http://host?q=#f"),
            ("http://[::1]:1", "http://[::1]:1"),
        ] {
            assert_eq!(quoted(url), sent);
        }
    }

    #[test]
    fn urls_without_secrets() {
        for (url, shown) in [
            ("http://me:secret@host:1/x?target=a&api_key=abc&TOKEN=x", "http://host:1/x?target=a&api_key=…&TOKEN=…"),
            ("https://host", "https://host"),
            ("http://a:b@c@host?x", "http://host?x"),
            ("http://host/x?a=1;token=b;c=2&&Pwd=d#key=e", "http://host/x?a=1;token=…;c=2&&Pwd=…"),
            ("http://host?", "http://host?"),
            ("http://[::1]:9100/a#b", "http://[::1]:9100/a"),
            ("file:///a@b", "file:///a@b"),
            (
                "http://host/probe?target=http://me:secret@to/x&module=a",
                "http://host/probe?target=http://…@to/x&module=a",
            ),
            ("http://host/probe?target=https%3A%2F%2Fme%3Asecret%40to%2Fx", "http://host/probe?target=https://…@to/x"),
            (
                "http://host/probe?target=http%253A%252F%252Fme%253Asecret%2540to",
                "http://host/probe?target=http://…@to",
            ),
            ("http://host/via/http://me:sec%20ret@to/x", "http://host/via/http://…@to/x"),
            (
                "http://host/%7Ea/b%20c?%74oken=x&api%5Fkey=y&a=%20",
                "http://host/%7Ea/b%20c?%74oken=…&api%5Fkey=…&a=%20",
            ),
            ("http://host/query?u=me&p=secret&code=secret&codec=x", "http://host/query?u=me&p=…&code=…&codec=x"),
        ] {
            assert_eq!(presentable(url), shown);
        }
    }

    #[test]
    fn users_of_urls() {
        for (url, plain, user) in [
            ("http://me%40x:se%2Fc%zzret@host:1/a@b", "http://host:1/a@b", Some("me@x:se/c%zzret")),
            ("https://me@host", "https://host", Some("me:")),
            ("http://host/%41", "http://host/%41", None),
            ("http://@host/", "http://host/", None),
        ] {
            assert_eq!(without_user(url), (plain.to_owned(), user.map(|user| user.as_bytes().to_owned())));
        }
    }

    #[test]
    fn the_first_match_counts() {
        let mut filters = Filters::default();
        for text in ["INCLUDE METRIC m1", "EXCLUDE METRIC m.*|x y$", "OPTIONAL LABEL zone", "EXCLUDE LABEL ^host$"] {
            assert_eq!(filters.add(text), Ok(None));
        }
        let metrics = ["m1", "m1x", "m2", "am2", "x y", "x yz"].map(|name| filters.includes_metric(name));
        assert_eq!(metrics, [true, true, false, true, false, true]);
        let labels = ["zone", "zones", "host", "hostname"].map(|name| filters.label(name));
        use Designation::{Exclude, Include, Optional};
        assert_eq!(labels, [Optional, Optional, Exclude, Include]);
    }

    #[test]
    fn odd_filters() {
        let mut filters = Filters::default();
        assert!(filters.add("EXCLUDE").is_err());
        assert!(filters.add("EXCLUDE METRIC m[").unwrap_err().starts_with("invalid regular expression \"m[\": "));
        assert!(filters.add("EXCLUDE METRIC (?!a)b").is_err());
        assert!(filters.add("REMOVE METRIC a").unwrap().is_some());
        assert!(filters.add("EXCLUDE METRICS b").unwrap().is_some());
        assert_eq!(["a", "b"].map(|name| filters.includes_metric(name)), [false, true]);
        // A filter without a pattern matches everything.
        assert_eq!(filters.add("EXCLUDE METRIC"), Ok(None));
        assert!(!filters.includes_metric("b"));
    }
}
