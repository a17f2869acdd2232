//! Inputs that readers stumble over: kept in the tree, and given to every reader of the project by its own tests. A reader may
//! refuse them all; it must not panic, hang, or take one for what it is not.

/// The inputs as they stand in the corpus.
const CORPUS: &str = include_str!("../corpus/hostile.txt");
/// Of a long input so many places are tried.
const PLACES: usize = 48;
/// What a byte is replaced by.
const REPLACEMENTS: [u8; 6] = [0, b'%', 0x7f, 0x80, 0xfe, 0xff];

/// All inputs, and what is left of them when they are torn.
pub fn bytes() -> Vec<Vec<u8>> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(unescaped).flat_map(|input| near(&input)).collect()
}

/// Those that are text.
pub fn texts() -> Vec<String> {
    bytes().into_iter().filter_map(|input| String::from_utf8(input).ok()).collect()
}

/// An input, and others like it: torn, with a byte replaced, with a byte too many. For readers of a form of ours, which get
/// what they have written themselves.
pub fn near(input: &[u8]) -> Vec<Vec<u8>> {
    let step = input.len() / PLACES + 1;
    let mut all = vec![input.to_vec()];
    for at in (0..input.len()).step_by(step) {
        all.push(input[..at].to_vec());
        all.push(input[at..].to_vec());
        for replacement in REPLACEMENTS {
            let mut changed = input.to_vec();
            changed[at] = replacement;
            all.push(changed);
        }
        all.push([&input[..at], b"1", &input[at..]].concat());
    }
    all
}

/// A line of the corpus, read.
fn unescaped(line: &str) -> Vec<u8> {
    let repeated = line.strip_prefix('*').and_then(|rest| rest.split_once(' '));
    let repeated = repeated.and_then(|(count, text)| Some((count.parse::<usize>().ok()?, text)));
    let (count, text) = repeated.unwrap_or((1, line));
    let mut read = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let meant = match (byte, after) {
            (b'\\', [b'x', high, low, ..]) => {
                let digit =
                    |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(*high).zip(digit(*low)).map(|(high, low)| (high << 4 | low, 3))
            }
            (b'\\', [letter, ..]) => {
                let meant = [(b'n', b'\n'), (b't', b'\t'), (b'r', b'\r'), (b'0', 0), (b'\\', b'\\')];
                meant.iter().find(|(written, _)| written == letter).map(|(_, meant)| (*meant, 1))
            }
            _ => None,
        };
        let (byte, written) = meant.unwrap_or((byte, 0));
        read.push(byte);
        rest = &after[written..];
    }
    read.repeat(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_is_read_as_it_is_meant() {
        assert_eq!(unescaped(r"a\n\x00\xff\\n\q"), b"a\n\0\xff\\n\\q");
        assert_eq!(unescaped("*3 ab"), b"ababab");
        assert_eq!((unescaped("*0 x"), unescaped("* x")), (Vec::new(), b"* x".to_vec()));
        let all = bytes();
        assert!(all.contains(&Vec::new()) && all.contains(&vec![0xff]) && all.contains(&b"-5s".to_vec()));
        assert!(all.iter().any(|input| input.len() >= 70_000) && all.len() > 10_000, "{}", all.len());
    }
}
