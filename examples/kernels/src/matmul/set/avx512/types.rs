//! Block types of ggml, read as unsigned numbers: value = scale * number - offset.

#![expect(clippy::unwrap_used, reason = "rows have whole blocks, as ggml's shapes say")]
#![expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "indices of lanes")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, __m512, __m512i, _mm_cvtph_ps, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_mul_ps,
    _mm256_set1_ps, _mm512_and_si512, _mm512_castps128_ps512, _mm512_castsi128_si512, _mm512_castsi512_si256,
    _mm512_cvtepi32_epi16, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_inserti32x4, _mm512_mul_ps, _mm512_or_si512,
    _mm512_permutex2var_epi16, _mm512_permutexvar_epi16, _mm512_permutexvar_ps, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_srli_epi16, _mm512_srli_epi32, _mm512_xor_si512,
    _mm512_zextps256_ps512,
};

use super::fours;

/// The types, as constants for generic functions.
pub(super) const Q8_0: u8 = 0;
pub(super) const Q4_0: u8 = 1;
pub(super) const Q4_K: u8 = 2;

/// How a type lies in memory, and how it is read.
pub(super) struct Facts {
    /// The blocks of a unit, and its bytes.
    pub(super) blocks: usize,
    pub(super) bytes: usize,
    /// The offset of each block, divided by its scale; 0 if blocks have offsets of their own.
    pub(super) offset: i32,
    /// The blocks that are read at once, and the vectors that they fill.
    pub(super) group: usize,
    pub(super) vectors: usize,
    /// Whether all vectors have the scales of the first one.
    pub(super) merged: bool,
}

impl Facts {
    pub(super) const fn of(dtype: u8) -> Self {
        match dtype {
            Q8_0 => Self { blocks: 1, bytes: 34, offset: 128, group: 4, vectors: 2, merged: false },
            Q4_0 => Self { blocks: 1, bytes: 18, offset: 8, group: 4, vectors: 2, merged: true },
            _ => Self { blocks: 8, bytes: 144, offset: 0, group: 8, vectors: 4, merged: false },
        }
    }

    pub(super) const fn group_bytes(&self) -> usize {
        self.group / self.blocks * self.bytes
    }
}

/// The block of a group, and the value of it, at byte `i` of a vector.
pub(super) const fn place(dtype: u8, vector: usize, i: usize) -> (usize, usize) {
    match dtype {
        Q8_0 => (2 * vector + i / 32, i % 32),
        Q4_0 => (i / 16, 16 * vector + i % 16),
        // Chunks of 32 bytes have two blocks, in their lower and upper halves.
        _ => (4 * (vector / 2) + vector % 2 + 2 * (i / 32), i % 32),
    }
}

/// The most vectors of a group.
pub(super) const VECTORS: usize = 4;

/// A group of weights, in registers.
pub(super) struct Group {
    pub(super) numbers: [__m512i; VECTORS],
    pub(super) scales: [__m512; VECTORS],
    /// The offset of each block, if they are no multiples of the scales.
    pub(super) offsets: __m512,
}

/// Reads a group.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,f16c")]
#[inline]
pub(super) fn group<const T: u8>(bytes: &[u8]) -> Group {
    match T {
        Q8_0 => q8_0_group(bytes.first_chunk().unwrap()),
        Q4_0 => q4_0_group(bytes.first_chunk().unwrap()),
        _ => q4_k_group(bytes.first_chunk().unwrap()),
    }
}

/// For each lane of floats the lane that it gets.
const fn lanes(by: usize, first: usize, step: usize) -> [i32; 16] {
    let mut all = [0; 16];
    let mut i = 0;
    while i < 16 {
        all[i] = (first + i / by * step) as i32;
        i += 1;
    }
    all
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
fn q8_0_group(bytes: &[u8; 136]) -> Group {
    let half = |i: usize| u64::from(u16::from_le_bytes([bytes[34 * i], bytes[34 * i + 1]]));
    let four = half(0) | half(1) << 16 | half(2) << 32 | half(3) << 48;
    let four = _mm512_castps128_ps512(_mm_cvtph_ps(bytemuck::cast([four, 0])));
    let scales = |first| _mm512_permutexvar_ps(bytemuck::cast(lanes(8, first, 1)), four);
    let numbers = |i: usize| {
        let two: [__m256i; 2] = [read(bytes, 34 * i + 2), read(bytes, 34 * i + 36)];
        _mm512_xor_si512(bytemuck::cast(two), _mm512_set1_epi8(-128))
    };
    let (none, zero) = (_mm512_setzero_si512(), _mm512_setzero_ps());
    Group { numbers: [numbers(0), numbers(2), none, none], scales: [scales(0), scales(2), zero, zero], offsets: zero }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
fn q4_0_group(bytes: &[u8; 72]) -> Group {
    /// 16-bit words: the scale of block `i` is word `9 * i`, its numbers are the next eight.
    const SCALES: [u16; 32] = {
        let mut all = [0; 32];
        let mut i = 0;
        while i < 16 {
            all[i] = (i / 4 * 9) as u16;
            i += 1;
        }
        all
    };
    const NUMBERS: [u16; 32] = {
        let mut all = [0; 32];
        let mut i = 0;
        while i < 32 {
            let word = i / 8 * 9 + 1 + i % 8;
            // The second operand has the words from the fifth on.
            all[i] = (if word < 32 { word } else { 32 + word - 4 }) as u16;
            i += 1;
        }
        all
    };
    let [a, b]: [__m512i; 2] = [read(bytes, 0), read(bytes, 8)];
    let numbers = _mm512_permutex2var_epi16(a, bytemuck::cast(NUMBERS), b);
    let scales = _mm512_castsi512_si256(_mm512_permutexvar_epi16(bytemuck::cast(SCALES), a));
    let mask = _mm512_set1_epi8(15);
    let lower = _mm512_and_si512(numbers, mask);
    let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(numbers), mask);
    let (none, zero) = (_mm512_setzero_si512(), _mm512_setzero_ps());
    Group { numbers: [lower, upper, none, none], scales: [_mm512_cvtph_ps(scales), zero, zero, zero], offsets: zero }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
fn q4_k_group(bytes: &[u8; 144]) -> Group {
    let (scales, offsets) = q4_k_scales(bytes);
    let eight = _mm512_zextps256_ps512(scales);
    let mask = _mm512_set1_epi8(15);
    let [a, b]: [__m512i; 2] = [read(bytes, 16), read(bytes, 80)];
    let upper = |x| _mm512_and_si512(_mm512_srli_epi16::<4>(x), mask);
    let numbers = [_mm512_and_si512(a, mask), upper(a), _mm512_and_si512(b, mask), upper(b)];
    let scales = |first| _mm512_permutexvar_ps(bytemuck::cast(lanes(8, first, 2)), eight);
    Group { numbers, scales: [scales(0), scales(1), scales(4), scales(5)], offsets: _mm512_zextps256_ps512(offsets) }
}

/// The scales and offsets of eight blocks: numbers of six bits, times one factor each.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
fn q4_k_scales(bytes: &[u8; 144]) -> (__m256, __m256) {
    let factors = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let [scale, offset, ..]: [f32; 4] = bytemuck::cast(_mm_cvtph_ps(bytemuck::cast([factors, 0, 0, 0])));
    let [a, b, c]: [u32; 3] = read(bytes, 4);
    // The last four have their upper two bits in the upper bits of the first four.
    let sc = u64::from(a & 0x3f3f_3f3f) | u64::from(c & 0x0f0f_0f0f | (a >> 6 & 0x0303_0303) << 4) << 32;
    let of = u64::from(b & 0x3f3f_3f3f) | u64::from(c >> 4 & 0x0f0f_0f0f | (b >> 6 & 0x0303_0303) << 4) << 32;
    let floats = |x: u64| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytemuck::cast([x, 0])));
    (_mm256_mul_ps(floats(sc), _mm256_set1_ps(scale)), _mm256_mul_ps(floats(of), _mm256_set1_ps(offset)))
}

/// The numbers of sixteen units, four of each in a vector: `put` gets their block, the index of the four in it, and the vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
pub(super) fn numbers<const T: u8, const BYTES: usize>(
    units: [&[u8; BYTES]; 16],
    mut put: impl FnMut(usize, usize, __m512i),
) {
    let mask = _mm512_set1_epi8(15);
    let (first, chunks) = match T {
        Q8_0 => (2, 2),
        Q4_0 => (2, 1),
        _ => (16, 8),
    };
    for chunk in 0..chunks {
        for (i, bytes) in columns(units, first + 16 * chunk).into_iter().enumerate() {
            let k = chunk % 2 * 4 + i;
            let (lower, upper) = (_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask));
            match T {
                Q8_0 => put(0, k, _mm512_xor_si512(bytes, _mm512_set1_epi8(-128))),
                Q4_0 => {
                    put(0, i, lower);
                    put(0, i + 4, upper);
                }
                _ => {
                    put(chunk / 2 * 2, k, lower);
                    put(chunk / 2 * 2 + 1, k, upper);
                }
            }
        }
    }
}

/// Sixteen bytes of each unit: the first four of all, then the next four.
#[target_feature(enable = "avx512f")]
#[inline]
fn columns<const BYTES: usize>(units: [&[u8; BYTES]; 16], offset: usize) -> [__m512i; 4] {
    let mut columns = [_mm512_setzero_si512(); 4];
    for (i, column) in columns.iter_mut().enumerate() {
        let part = |q: usize| -> __m128i { read(units[4 * q + i], offset) };
        let lower = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(part(0)), part(1));
        *column = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(lower, part(2)), part(3));
    }
    fours(columns)
}

/// The scales of units' blocks, and their offsets if they are no multiples: [block][column].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
pub(super) fn scales<const T: u8, const BYTES: usize>(
    units: [&[u8; BYTES]; 16],
    mut put: impl FnMut(usize, [f32; 16], [f32; 16]),
) {
    if T == Q8_0 || T == Q4_0 {
        let halves = units.map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        put(0, bytemuck::cast(_mm512_cvtph_ps(bytemuck::cast(halves))), [0.0; 16]);
        return;
    }
    let words = |i: usize| -> __m512i { bytemuck::cast(units.map(|unit| read::<[u8; 4]>(unit, 4 * i))) };
    let [factors, a, b, c] = [words(0), words(1), words(2), words(3)];
    let halves = |x| _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
    let (scale, offset) = (halves(factors), halves(_mm512_srli_epi32::<16>(factors)));
    // As in `q4_k_scales`, for a lane of each unit.
    let (low, six, upper) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x3f), _mm512_set1_epi8(0x30));
    let last = |four, two| {
        let two = _mm512_and_si512(_mm512_srli_epi32::<2>(two), upper);
        _mm512_or_si512(_mm512_and_si512(four, low), two)
    };
    let mut scales = [_mm512_and_si512(a, six), last(c, a)];
    let mut offsets = [_mm512_and_si512(b, six), last(_mm512_srli_epi32::<4>(c), b)];
    for i in 0..4 {
        for half in 0..2 {
            let floats = |x, by| {
                let byte = _mm512_and_si512(x, _mm512_set1_epi32(0xff));
                bytemuck::cast(_mm512_mul_ps(_mm512_cvtepi32_ps(byte), by))
            };
            put(4 * half + i, floats(scales[half], scale), floats(offsets[half], offset));
            scales[half] = _mm512_srli_epi32::<8>(scales[half]);
            offsets[half] = _mm512_srli_epi32::<8>(offsets[half]);
        }
    }
}

/// A vector at an offset.
#[inline(always)]
fn read<V: bytemuck::AnyBitPattern>(bytes: &[u8], offset: usize) -> V {
    bytemuck::pod_read_unaligned(&bytes[offset..][..size_of::<V>()])
}
