//! How long the relay waits for a server.

use std::num::NonZeroU64;

use super::*;

/// A sufficient rate, in bytes per second: so high that a transfer at half of it makes progress in each [`SHORT`] time,
/// however large the system's buffers are.
pub(super) const RATE: NonZeroU64 = NonZeroU64::new(32 << 20).unwrap();

/// Sends bytes one by one, over the given total time.
fn trickle(stream: &mut TcpStream, bytes: &[u8], time: Duration) {
    for byte in bytes {
        thread::sleep(time / u32::try_from(bytes.len()).unwrap());
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
    }
}

#[test]
fn relay_loses_a_silent_server_in_time() {
    let (link, relay) = relayed(|stream| {
        thread::sleep(200 * SHORT);
        drop(stream);
    });
    let start = Instant::now();
    assert_eq!(Client::new(relay).memory(), [0; 16]);
    assert!((SHORT..100 * SHORT).contains(&start.elapsed()), "took {:?}", start.elapsed());
    assert_eq!(reason(&link), "it did not finish GET_DEVICE_MEMORY within 300ms");
}

#[test]
fn relay_loses_a_server_that_accepts_no_data_in_time() {
    let (link, relay) = relayed(|stream| {
        thread::sleep(200 * SHORT);
        drop(stream);
    });
    let mut client = Client::new(relay);
    client.tell(Command::SetTensor, &vec![0; 64 << 20]);
    assert_eq!(client.memory(), [0; 16]);
    assert_eq!(reason(&link), "it was silent for 300ms during SET_TENSOR");
}

#[test]
fn relay_limits_a_reply_of_single_bytes() {
    let (link, relay) = relayed(|mut stream| {
        request(&mut stream);
        trickle(&mut stream, &[&16_u64.to_le_bytes()[..], &[7; 16]].concat(), 20 * SHORT);
    });
    let start = Instant::now();
    Client::new(relay).memory();
    assert!((SHORT..10 * SHORT).contains(&start.elapsed()), "took {:?}", start.elapsed());
    assert_eq!(reason(&link), "it did not finish GET_DEVICE_MEMORY within 300ms");
}

/// The limit of a request and its answer grows by a second per `least_rate` bytes.
#[test]
fn relay_limits_large_replies_by_the_least_rate() {
    let len = u32::try_from(RATE.get()).unwrap();
    let slow = |time: Duration| {
        relayed(move |mut stream| {
            request(&mut stream);
            stream.write_all(&u64::from(len).to_le_bytes()).unwrap();
            for _ in 0..64 {
                thread::sleep(time / 64);
                if stream.write_all(&vec![5; len as usize / 64]).is_err() {
                    return;
                }
            }
            request(&mut stream);
        })
    };
    let (link, relay) = slow(3 * SHORT);
    assert_eq!(Client::new(relay).ask(Command::GetTensor, &get(len.into())), vec![5; len as usize]);
    link.check().unwrap();
    let (link, relay) = slow(20 * SHORT);
    Client::new(relay).ask(Command::GetTensor, &get(len.into()));
    assert_eq!(reason(&link), "it did not finish GET_TENSOR within 1.3s");
}

/// The total limit applies to uploads, too.
#[test]
fn relay_limits_uploads_taken_in_small_pieces() {
    let (link, relay) = relayed(|mut stream| {
        while stream.read_exact(&mut vec![0; 512 << 10]).is_ok() {
            thread::sleep(SHORT / 8);
        }
    });
    let mut client = Client::new(relay);
    let start = Instant::now();
    client.tell(Command::SetTensor, &vec![0; 48 << 20]);
    client.memory();
    assert!(start.elapsed() < 100 * SHORT, "took {:?}", start.elapsed());
    assert_eq!(reason(&link), "it did not finish SET_TENSOR within 1.3s");
}
