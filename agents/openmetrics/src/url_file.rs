//! Configuration of a source: a file whose first line is the URL, or, beside a script, a file with the further lines only.

use std::path::PathBuf;
use std::time::Duration;

use pmapi::interval;

use crate::filter::{Filters, Pattern};

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

/// Format that an HTTP server is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Format {
    /// The one that the server prefers, as with PCP's agent.
    #[default]
    Any,
    OpenMetrics,
    Prometheus,
}

/// What becomes of the metrics of a document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) filters: Filters,
    pub(crate) metadata: Vec<Metadata>,
    pub(crate) exemplars: Exemplars,
}

/// What becomes of exemplars.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Exemplars {
    #[default]
    Ignored,
    /// The exemplar of a sample is a value of a metric whose name ends with `_exemplar`.
    Metrics,
}

/// A line `METADATA:`. It overrides what the document says about the metrics whose names match.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub(crate) pattern: Pattern,
    /// Type, instance domain, semantics and units, separated by spaces.
    pub(crate) text: String,
}

/// Limits of a source, where its file says others than the command line.
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

/// Files with the secrets and certificates of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// File with the token for the header `Authorization: Bearer`.
    pub(crate) bearer: Option<PathBuf>,
    /// File with `USER:PASSWORD` for the header `Authorization: Basic`.
    pub(crate) basic: Option<PathBuf>,
    /// PEM file with the certificates of the authorities that are trusted, in place of the usual ones.
    pub(crate) authorities: Option<PathBuf>,
    /// PEM files with the client's certificates and its key.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Unix socket of the server.
    pub(crate) socket: Option<PathBuf>,
}

/// The reason why a file is refused: line and text.
pub(crate) type Refused = (usize, String);

impl UrlFile {
    /// Parses a file.
    pub(crate) fn parse(text: &str) -> Result<UrlFile, Refused> {
        let text = text.trim();
        let (url, lines) = text.split_once('\n').unwrap_or((text, ""));
        let url = url.trim_end();
        let known = ["http://", "https://", "file://"].iter().any(|scheme| url.starts_with(scheme));
        if !known {
            return Err((1, "the first line must be a URL: http://…, https://… or file://…".into()));
        }
        let mut file = UrlFile { url: url.to_owned(), ..UrlFile::default() };
        file.lines(lines, 2)?;
        Ok(file)
    }

    /// Parses the file beside a script, which has no URL.
    pub(crate) fn parse_script(text: &str) -> Result<UrlFile, Refused> {
        let mut file = UrlFile::default();
        file.lines(text, 1)?;
        Ok(file)
    }

    /// Parses lines, the first of which has this number.
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
        match keyword {
            "HEADER" => {
                let (name, value) = rest.split_once(':').unwrap_or((rest, ""));
                let name: String = name.split_whitespace().collect();
                self.headers.push((name, value.trim_start().to_owned()));
            }
            "FILTER" => return self.rules.filters.add(rest),
            "METADATA" => return self.metadata(rest),
            "TIMEOUT" => self.limits.timeout = Some(time(rest)?),
            "WAIT" => self.limits.wait = Some(interval::parse(rest).map_err(|e| e.to_string())?),
            "INTERVAL" => self.limits.interval = Some(time(rest)?),
            "BACKOFF" => self.limits.backoff = Some(interval::parse(rest).map_err(|e| e.to_string())?),
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
                    _ => return Err("FORMAT is any, openmetrics or prometheus".into()),
                }
            }
            "EXEMPLARS" => {
                self.rules.exemplars = match rest {
                    "ignore" => Exemplars::Ignored,
                    "metrics" => Exemplars::Metrics,
                    _ => return Err("EXEMPLARS is ignore or metrics".into()),
                }
            }
            _ => return Ok(Some(unknown())),
        }
        Ok(None)
    }

    /// Parses the rest of a line `METADATA:`. Single spaces separate its words, as in PCP's agent, where two spaces make
    /// an empty word.
    fn metadata(&mut self, rest: &str) -> Result<Option<String>, String> {
        // The first word ends with the first space, so that nothing may stand right behind the colon.
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

/// Parses a time that is not zero.
fn time(text: &str) -> Result<Duration, String> {
    match interval::parse(text) {
        Ok(Duration::ZERO) => Err("the time must not be zero".into()),
        parsed => parsed.map_err(|e| e.to_string()),
    }
}

/// Returns a URL without what may be secret: user and password, and the values of query parameters with such names.
pub(crate) fn presentable(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme == "file" {
        return url.to_owned();
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut shown = format!("{scheme}://{host}{path}");
    if let Some(query) = query {
        let parameters: Vec<String> = query.split('&').map(parameter).collect();
        shown.push('?');
        shown.push_str(&parameters.join("&"));
    }
    shown
}

/// Returns a query parameter, without its value if that is likely to be a secret.
fn parameter(text: &str) -> String {
    let secrets = ["token", "key", "secret", "pass", "auth", "sig", "credential", "session"];
    match text.split_once('=') {
        Some((name, _)) if secrets.iter().any(|secret| name.to_ascii_lowercase().contains(secret)) => {
            format!("{name}=…")
        }
        _ => text.to_owned(),
    }
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
    fn files_that_are_refused() {
        for (text, line) in [
            ("", 1),
            ("# a comment\nhttp://x", 1),
            ("ftp://x/y", 1),
            ("http://x\nFILTER: EXCLUDE\n", 2),
            ("http://x\n\nFILTER: EXCLUDE METRIC [\n", 3),
            ("http://x\nTIMEOUT: 0\n", 2),
            ("http://x\nFORMAT: protobuf\n", 2),
            ("http://x\nEXEMPLARS: labels\n", 2),
            ("http://x\nINTERVAL: soon\n", 2),
            ("http://x\nMETADATA: ( u32 x counter none\n", 2),
        ] {
            assert_eq!(UrlFile::parse(text).unwrap_err().0, line, "{text}");
        }
    }

    #[test]
    fn urls_without_secrets() {
        for (url, shown) in [
            ("http://me:secret@host:1/x?target=a&api_key=abc&TOKEN=x", "http://host:1/x?target=a&api_key=…&TOKEN=…"),
            ("https://host", "https://host"),
            ("http://a:b@c@host?x", "http://host?x"),
            ("file:///a@b", "file:///a@b"),
        ] {
            assert_eq!(presentable(url), shown);
        }
    }
}
