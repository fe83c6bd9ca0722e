//! Runs a fuzz target as an ordinary test: each file of its corpus, then a number of inputs made from them.
//!
//! Invariant: the same inputs at every run, so that a red test stays red. Another choice is made with
//! `RELAIS_FUZZ_SEED`, more inputs with `RELAIS_FUZZ_ROUNDS`. The engine that follows coverage is in
//! `fuzz/Cargo.toml`.

use std::{env, fs, path::Path};

/// Longest input that is made; files of the corpus may be longer.
const INPUT_MAX: usize = 4 * 1024;
/// Most changes to one input.
const CHANGES_MAX: u64 = 6;
/// Bytes that parsers often handle wrongly.
const ODD: [&[u8]; 20] = [
    b"\0",
    b"\"",
    b"\"\"",
    b"\n",
    b"\r",
    b"\r\n",
    b"\xff",
    b"\xfe",
    b"\xef\xbb\xbf",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}}",
    b"{{",
    b"%00",
    b"\x1b[2J",
    b"\xc2\x9b",
    b"9223372036854775808",
    b"-1",
    b"#N/A",
];

/// Tries every input of `target`; the first that fails is shown by a panic.
pub(crate) fn run(target: &str, rounds: u64, mut attempt: impl FnMut(&[u8])) {
    let corpus = corpus(target);
    for (name, input) in &corpus {
        let shown = Shown { target, name, input };
        attempt(input);
        drop(shown);
    }
    let mut dice = Dice::new(target, number("RELAIS_FUZZ_SEED", 0));
    for round in 0..number("RELAIS_FUZZ_ROUNDS", rounds) {
        let input = dice.input(&corpus);
        let shown = Shown { target, name: &format!("round {round}"), input: &input };
        attempt(&input);
        drop(shown);
    }
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut corpus: Vec<_> = files
        .map(|file| {
            let path = file.expect("a file").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a readable file"))
        })
        .collect();
    assert!(!corpus.is_empty(), "{} holds nothing to begin with", folder.display());
    corpus.sort();
    corpus
}

fn number(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |text| text.parse().expect(variable))
}

/// The current input, printed if its attempt panics.
struct Shown<'a> {
    target: &'a str,
    name: &'a str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { target, name, input } = self;
            let text = input.escape_ascii();
            eprintln!("fuzz target `{target}` fails with {name}: b\"{text}\"");
            eprintln!("fix it, and put the input into fuzz/corpus/{target}");
        }
    }
}

/// Chance that is the same every time.
struct Dice(u64);

impl Dice {
    fn new(target: &str, seed: u64) -> Self {
        let mix =
            |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let bytes = target.bytes().chain(seed.to_be_bytes());
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, mix) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a length")
    }

    /// An input of the corpus with a few changes.
    fn input(&mut self, corpus: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut input = corpus[self.index(corpus.len())].1.clone();
        input.truncate(INPUT_MAX);
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut input, corpus);
        }
        input.truncate(INPUT_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[(String, Vec<u8>)]) {
        let at = self.index(input.len() + 1);
        let end = at + self.index((input.len() - at).min(32) + 1);
        match self.below(6) {
            0 => drop(input.drain(at..end)),
            1 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            2 => {
                let odd = ODD[self.index(ODD.len())];
                input.splice(at..end, odd.iter().copied());
            }
            3 => {
                let odd = ODD[self.index(ODD.len())];
                input.splice(at..at, odd.iter().copied());
            }
            4 => {
                let other = &corpus[self.index(corpus.len())].1;
                let from = self.index(other.len() + 1);
                let to = from + self.index((other.len() - from).min(64) + 1);
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let byte = u8::try_from(self.below(256)).expect("a byte");
                input.splice(at..end.min(at + 1), [byte]);
            }
        }
    }
}
