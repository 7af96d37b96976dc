//! Tables of replacements, as SentencePiece compiles them: a double array, whose nodes have 32 bits each.

use std::collections::{BTreeMap, BTreeSet};

/// What becomes what: nothing, one character or several; some begin others.
pub fn replacements() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = [
        ("ﬁ", "fi"),
        ("Ａ", "A"),
        ("²", "2"),
        ("½", "1 2"),
        ("…", "..."),
        ("\t", " "),
        ("\n", " "),
        ("\r\n", " "),
        ("\u{3000}", " "),
        ("\u{A0}", " "),
        ("\u{200D}", ""),
        ("\u{AD}", ""),
        ("e\u{301}", "é"),
        ("é", "e"),
        ("the", "THE"),
        ("th", "Th"),
        ("Ω", "Ω"),
    ]
    .map(|(from, to)| (from.to_owned(), to.to_owned()))
    .to_vec();
    // A block of letters that become others.
    all.extend(
        ('Ａ'..'Ｚ').skip(1).map(|c| (c.to_string(), char::from(b'A' + (c as u32 - 'Ａ' as u32) as u8).to_string())),
    );
    all
}

/// A trie: the children of each node by their byte, and the place of the replacement of what ends there.
#[derive(Default)]
struct Node {
    children: BTreeMap<u8, Node>,
    value: Option<u32>,
}

/// The bytes of a file's table.
pub fn write(replacements: &[(String, String)]) -> Vec<u8> {
    let (mut root, mut texts) = (Node::default(), Vec::new());
    for (from, to) in replacements {
        let node = from.bytes().fold(&mut root, |node, byte| node.children.entry(byte).or_default());
        node.value = Some(u32::try_from(texts.len()).expect("few texts"));
        texts.extend(to.bytes());
        texts.push(0);
    }
    let mut array = vec![0_u32; 1];
    let mut used = BTreeSet::from([0]);
    place(&root, 0, &mut array, &mut used, &mut BTreeSet::new());
    // llama.cpp ends the process if a byte of a text leads out of the array.
    array.resize(array.len().next_multiple_of(256), 0);
    let mut bytes = u32::try_from(array.len() * 4).expect("a small array").to_le_bytes().to_vec();
    bytes.extend(array.iter().flat_map(|node| node.to_le_bytes()));
    bytes.extend(texts);
    bytes
}

/// Places the children of the node at an index: each at a base combined by XOR with its byte, the value at the base itself. No two
/// nodes have the same base, or one would find the children of the other.
fn place(node: &Node, index: u32, array: &mut Vec<u32>, used: &mut BTreeSet<u32>, bases: &mut BTreeSet<u32>) {
    let bytes: Vec<u32> = node.children.keys().map(|&byte| u32::from(byte)).chain(node.value.map(|_| 0)).collect();
    // A base is kept relative to the node, in 21 bits: an index of a block of 256 nodes that has room.
    let free = |base: &u32| !bases.contains(base) && bytes.iter().all(|byte| !used.contains(&(base ^ byte)));
    let base = (256..).find(free).expect("an array has no end");
    bases.insert(base);
    for byte in &bytes {
        used.insert(base ^ byte);
        array.resize(array.len().max((base ^ byte) as usize + 1), 0);
    }
    let (byte, relative) = (array[index as usize] & 0xFF, base ^ index);
    assert!(relative < 1 << 21, "the array is too large");
    array[index as usize] = relative << 10 | u32::from(node.value.is_some()) << 8 | byte;
    if let Some(value) = node.value {
        array[base as usize] = value | 1 << 31;
    }
    for (&byte, child) in &node.children {
        let at = base ^ u32::from(byte);
        array[at as usize] = u32::from(byte);
        place(child, at, array, used, bases);
    }
}
