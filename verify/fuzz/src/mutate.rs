//! Changes of an input, always the same ones from the same seed.

/// A generator of numbers: `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The same numbers for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero if there is none.
    #[allow(clippy::cast_possible_truncation, reason = "below a usize")]
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            return 0;
        }
        (self.roll() % bound as u64) as usize
    }
}

/// What parsers stumble over.
const ODD: &str = "\0|\n|\r\n| |%|%2F|%2C|%40|%00|/|?|#|@|,|:|..|-1|18446744073709551615|\
    9007199254740993|1e999|NaN|\u{1F512}|\"\"|null";

/// Numbers at their bounds, as records have them.
const EDGES: [f64; 6] = [0.0, -1.0, 9_007_199_254_740_992.0, 1e300, f64::NAN, 0.5];

/// Changes `input` a few times; `other` lends some of its bytes.
#[must_use]
pub fn change(input: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=dice.below(4) {
        once(&mut out, other, dice);
    }
    out.truncate(64 * 1024);
    out
}

fn once(out: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = dice.below(out.len());
    let end = (at + 1 + dice.below(8)).min(out.len());
    match dice.below(9) {
        0 if !out.is_empty() => out[at] ^= 1 << dice.below(8),
        1 if !out.is_empty() => out[at] = u8::try_from(dice.below(256)).unwrap_or(0),
        2 => drop(out.drain(at.min(end)..end)),
        3 => out.truncate(at),
        4 => {
            let copied = out[at.min(end)..end].to_vec();
            let to = dice.below(out.len() + 1);
            out.splice(to..to, copied);
        }
        5 => {
            let from = dice.below(other.len());
            let until = (from + dice.below(32)).min(other.len());
            out.splice(at..at, other[from..until].iter().copied());
        }
        6 if out.len() >= at + 8 => {
            let edge = EDGES[dice.below(EDGES.len())].to_le_bytes();
            out[at..at + 8].copy_from_slice(&edge);
        }
        7 => number(out, at, dice),
        _ => {
            let odd: Vec<_> = ODD.split('|').collect();
            let odd = odd[dice.below(odd.len())];
            out.splice(at..at, odd.bytes());
        }
    }
}

/// Replaces the next number in digits.
fn number(out: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let found = out.iter().skip(at).position(is_digit);
    let Some(start) = found.map(|found| at + found) else {
        return;
    };
    let digits = out[start..].iter().take_while(|byte| is_digit(byte));
    let length = digits.count();
    let number = match dice.below(4) {
        0 => u64::MAX.to_string(),
        1 => (1_u64 << dice.below(64)).to_string(),
        2 => "0".to_owned(),
        _ => dice.below(1 << 20).to_string(),
    };
    out.splice(start..start + length, number.into_bytes());
}
