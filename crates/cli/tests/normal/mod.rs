//! Takes out of a line what differs from run to run.

use std::{fs, path::Path};

/// Remembers tokens and ids, so that the same one has the same name in the whole transcript.
pub(crate) struct Normal {
    folder: String,
    host: String,
    /// The coordinator's URL, and what it is called without settings.
    url: Option<(String, String)>,
    tokens: Vec<String>,
    ids: Vec<String>,
}

impl Normal {
    pub(crate) fn new(folder: &Path) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        Self {
            folder: folder.display().to_string(),
            host: host.trim().to_owned(),
            url: None,
            tokens: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Shows this URL as `<URL>` where somebody could type it, and as `<PLACE>` elsewhere.
    pub(crate) fn hide(&mut self, url: &str) {
        let place = url.split('?').next().unwrap();
        self.url = Some((url.to_owned(), place.to_owned()));
    }

    pub(crate) fn line(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        if let Some((url, place)) = &self.url {
            for quote in ["'", ""] {
                line = line.replace(&format!("--url {quote}{url}{quote}"), "--url <URL>");
            }
            line = line.replace(place.as_str(), "<PLACE>");
        }
        let line = line.replace(&self.folder, "<DIR>");
        let line = line.replace(&format!("@{}", self.host), "@<HOST>");
        let line = runs(&line, &format!("{}:", self.host), |rest| {
            let pid = digits(rest);
            (pid > 0 && rest[pid..].starts_with(':')).then(|| (pid, "<HOST>:<PID>".to_owned()))
        });
        let line = words(&line, |word| {
            if word.len() == 16 && word.starts_with('1') && word.bytes().all(|byte| byte.is_ascii_digit()) {
                return Some(numbered("TOKEN", &mut self.tokens, word));
            }
            if word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Some(numbered("ID", &mut self.ids, word));
            }
            None
        });
        let line = times(&line);
        let line = ["remaining_ms\":", "waited_ms\":", "busy_for_ms\":"].iter().fold(line, |line, field| {
            runs(&line, field, |rest| {
                Some((digits(rest), format!("{field}<MS>"))).filter(|(length, _)| *length > 0)
            })
        });
        narrow(&ages(&line))
    }
}

fn numbered(what: &str, known: &mut Vec<String>, word: &str) -> String {
    let at = known.iter().position(|known| known == word).unwrap_or_else(|| {
        known.push(word.to_owned());
        known.len() - 1
    });
    format!("<{what}{}>", at + 1)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Replaces `start` and what follows it wherever `end` says how many bytes that are.
fn runs(line: &str, start: &str, end: impl Fn(&str) -> Option<(usize, String)>) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(start) {
        let after = &rest[at + start.len()..];
        out.push_str(&rest[..at]);
        if let Some((length, text)) = end(after) {
            out.push_str(&text);
            rest = &after[length..];
        } else {
            out.push_str(start);
            rest = after;
        }
    }
    out + rest
}

/// Replaces words of letters and digits.
fn words(line: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        if length == 0 {
            let first = rest.chars().next().unwrap();
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(length);
        out.push_str(&replace(word).unwrap_or_else(|| word.to_owned()));
        rest = after;
    }
    out
}

/// Replaces `2026-01-02T03:04:05Z`, with or without a fraction.
fn times(line: &str) -> String {
    const FORM: &str = "dddd-dd-ddTdd:dd:dd";
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let fits = rest.len() > FORM.len()
            && rest
                .bytes()
                .zip(FORM.bytes())
                .all(|(byte, form)| if form == b'd' { byte.is_ascii_digit() } else { byte == form });
        if let Some(end) = rest.find('Z').filter(|_| fits) {
            out.push_str("<TIME>");
            rest = &rest[end + 1..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// Replaces durations in lines that tell of time passing: those that show a moment or a token, or say so.
fn ages(line: &str) -> String {
    const TELL: [&str; 6] = ["<TIME>", "<TOKEN", "remaining", " ago", "busy ", "waited "];
    let settled = line.contains("revoke <") || line.contains('"') || line.contains("--wait");
    if settled || !TELL.iter().any(|word| line.contains(word)) {
        return line.to_owned();
    }
    let mut out: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let core = word.trim_matches(|character| matches!(character, '(' | ')' | ',' | ';'));
        if !is_duration(core) {
            out.push(word.to_owned());
        } else if let Some(last) = out.last_mut().filter(|last| last.ends_with("<AGE>")) {
            // The second unit of one duration.
            last.push_str(&word[word.find(core).unwrap() + core.len()..]);
        } else {
            out.push(word.replacen(core, "<AGE>", 1));
        }
    }
    out.join(" ")
}

fn is_duration(word: &str) -> bool {
    let number = word.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    number > 0 && matches!(&word[number..], "ms" | "s" | "m" | "h" | "d")
}

/// Columns are as wide as their contents: two spaces stand for any number, behind the indentation.
fn narrow(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let mut out = line[..indent].to_owned();
    let mut spaces = 0;
    for character in line[indent..].chars() {
        spaces = if character == ' ' { spaces + 1 } else { 0 };
        if spaces <= 2 {
            out.push(character);
        }
    }
    out
}
