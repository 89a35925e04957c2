//! The screen on a terminal whose locale has no lines and bars.

use std::env::VarError;

use ratatui::buffer::Buffer;

/// Returns whether the locale of the environment (locale(7)) is one of UTF-8.
pub(super) fn is_utf8() -> bool {
    is_utf8_of(|name| std::env::var(name))
}

fn is_utf8_of(variable: impl Fn(&str) -> Result<String, VarError>) -> bool {
    // The first one that is set.
    let set = |name| variable(name).ok().filter(|locale| !locale.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_ascii_lowercase();
    locale.split(['.', '@']).any(|part| part == "utf-8" || part == "utf8")
}

/// Replaces all characters of a screen that are not ASCII: those of the view by ones that look alike, others by `?`.
pub(super) fn replace(screen: &mut Buffer) {
    for cell in screen.content.iter_mut().filter(|cell| !cell.symbol().is_ascii()) {
        let c = cell.symbol().chars().next().unwrap_or_default();
        cell.set_char(like(c));
    }
}

fn like(c: char) -> char {
    match c {
        // Bars, the lowest first.
        '▁' => '_',
        '▂' => '.',
        '▃' => '-',
        '▄' => '~',
        '▅' => '=',
        '▆' => '+',
        '▇' => '*',
        '█' => '#',
        '─' | '–' => '-',
        '│' | '·' | '▏' => '|',
        '▲' | '↑' => '^',
        '▼' | '↓' => 'v',
        '●' => '*',
        '○' => 'o',
        '✖' => 'x',
        '…' => '>',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales() {
        let of = |set: &[(&str, &str)]| {
            is_utf8_of(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
            })
        };
        for good in ["en_US.UTF-8", "C.UTF-8", "C.utf8", "de_DE.UTF-8@euro", "C.Utf-8"] {
            assert!(of(&[("LANG", good)]), "{good}");
        }
        for other in ["C", "POSIX", "", "en_US", "en_US.ISO-8859-1", "ja_JP.eucJP", "UTF-88"] {
            assert!(!of(&[("LANG", other)]), "{other}");
        }
        assert!(!of(&[]));
        assert!(!of(&[("LANG", "C.UTF-8"), ("LC_ALL", "C")]) && of(&[("LANG", "C"), ("LC_CTYPE", "C.UTF-8")]));
        assert!(of(&[("LANG", "C.UTF-8"), ("LC_ALL", "")]));
    }
}
