//! Python's pickle format, protocol 2, as far as messages need it: integers, floats, bools and tuples of them.
//!
//! `pickle.loads` decodes a whole message in C, faster than any loop of Python over bytes could.

/// Appends values to a message.
#[derive(Debug, Default)]
pub struct Pickler {
    bytes: Vec<u8>,
}

impl Pickler {
    /// Begins a tuple, which [`end_tuple`](Self::end_tuple) ends.
    pub fn begin_tuple(&mut self) {
        self.bytes.push(b'(');
    }

    /// Ends the tuple that was begun last.
    pub fn end_tuple(&mut self) {
        self.bytes.push(b't');
    }

    /// A tuple without values.
    pub fn empty_tuple(&mut self) {
        self.bytes.push(b')');
    }

    /// An integer.
    pub fn int(&mut self, x: i64) {
        if let Ok(x) = u8::try_from(x) {
            self.bytes.extend([b'K', x]);
        } else if let Ok(x) = u16::try_from(x) {
            self.bytes.push(b'M');
            self.bytes.extend(x.to_le_bytes());
        } else if let Ok(x) = i32::try_from(x) {
            self.bytes.push(b'J');
            self.bytes.extend(x.to_le_bytes());
        } else {
            self.bytes.extend([0x8a, 8]);
            self.bytes.extend(x.to_le_bytes());
        }
    }

    /// An integer without a sign.
    pub fn unsigned(&mut self, x: u64) {
        match i64::try_from(x) {
            Ok(x) => self.int(x),
            Err(_) => {
                // The ninth byte keeps the number from being negative.
                self.bytes.extend([0x8a, 9]);
                self.bytes.extend(x.to_le_bytes());
                self.bytes.push(0);
            }
        }
    }

    /// A size or a position.
    pub fn size(&mut self, x: usize) {
        self.unsigned(x as u64);
    }

    /// A float.
    pub fn float(&mut self, x: f64) {
        self.bytes.push(b'G');
        self.bytes.extend(x.to_be_bytes());
    }

    /// A bool.
    pub fn bool(&mut self, x: bool) {
        self.bytes.push(if x { 0x88 } else { 0x89 });
    }

    /// A tuple of sizes.
    pub fn sizes(&mut self, sizes: &[usize]) {
        self.begin_tuple();
        sizes.iter().for_each(|size| self.size(*size));
        self.end_tuple();
    }

    /// A tuple of integers.
    pub fn ints(&mut self, ints: &[i64]) {
        self.begin_tuple();
        ints.iter().for_each(|x| self.int(*x));
        self.end_tuple();
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Moves what was appended to the end of `to`, as a list after its length in bytes.
    pub fn frame(&mut self, to: &mut Vec<u8>) {
        const HEAD: [u8; 4] = [0x80, 2, b']', b'('];
        const TAIL: [u8; 2] = [b'e', b'.'];
        let len = HEAD.len() + self.bytes.len() + TAIL.len();
        to.extend((len as u32).to_le_bytes());
        to.extend(HEAD);
        to.append(&mut self.bytes);
        to.extend(TAIL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn python_reads_what_was_appended() {
        let mut pickler = Pickler::default();
        for x in [0, 255, 256, 65_535, 65_536, -1, i64::from(i32::MIN), i64::MAX, i64::MIN] {
            pickler.int(x);
        }
        pickler.unsigned(u64::MAX);
        pickler.float(-0.5);
        pickler.bool(true);
        pickler.begin_tuple();
        pickler.sizes(&[3, 4]);
        pickler.empty_tuple();
        pickler.end_tuple();
        let mut bytes = Vec::new();
        pickler.frame(&mut bytes);
        assert!(pickler.is_empty());
        assert_eq!(bytes.len(), 4 + u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize);
        let mut python = Command::new("python3")
            .args(["-c", "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut python.stdin.take().unwrap(), &bytes[4..]).unwrap();
        let printed = python.wait_with_output().unwrap().stdout;
        let numbers = "0, 255, 256, 65535, 65536, -1, -2147483648, 9223372036854775807, -9223372036854775808";
        let expected = format!("[{numbers}, 18446744073709551615, -0.5, True, ((3, 4), ())]\n");
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
    }
}
