//! Several generators on one port: what is due of each leaves in one burst.

use super::PortGenerator;
use drophammer_model::quantity::Instant;
use drophammer_port::{BURST, Port, PortError, Sent};

/// Frames of one generator within a burst: which generator, first slot, number of slots.
type Share = (usize, usize, usize);

/// Sends what is due of all `generators`, which are of the same port, at most one burst; returns how many frames went out.
/// `turn` says which generator is asked first; it is moved on, so that none has to wait for the others for ever.
///
/// # Errors
/// The port's.
pub(crate) fn send_due(
    generators: &mut [PortGenerator],
    turn: &mut usize,
    port: &mut dyn Port,
    now: Instant,
) -> Result<usize, PortError> {
    let count = generators.len();
    let (mut shares, mut used, mut filled) = ([(0, 0, 0); BURST], 0, 0);
    for i in 0..count {
        let which = (*turn + i) % count;
        let generator = &mut generators[which];
        let frames = generator.due(now).min(BURST - filled);
        if frames > 0 {
            generator.catch_up.take(frames);
            generator.fill(port, filled, &[now; BURST][..frames]);
            let share: Share = (which, filled, frames);
            shares[used] = share;
            used += 1;
            filled += frames;
        }
        if filled == BURST {
            *turn = (which + 1) % count;
            break;
        }
    }
    if filled == 0 {
        return Ok(0);
    }
    let sent = port.send(filled)?;
    let device_loss = port.info().refusal_is_device_loss;
    for (which, first, frames) in &shares[..used] {
        generators[*which].account(*frames, part(sent, *first, *frames), device_loss, now);
    }
    Ok(filled)
}

/// What became of `frames` slots from slot `first` on.
fn part(sent: Sent, first: usize, frames: usize) -> Sent {
    let refused_mask = sent.refused_mask >> first & (u64::MAX >> (BURST - frames));
    let refused = refused_mask.count_ones();
    Sent { accepted: frames as u32 - refused, refused, refused_mask }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_burst_has_its_own_refusals() {
        let sent = Sent { accepted: 60, refused: 4, refused_mask: 1 | 1 << 9 | 1 << 10 | 1 << 63 };
        assert_eq!(part(sent, 0, 64), sent);
        assert_eq!(part(sent, 0, 9), Sent { accepted: 8, refused: 1, refused_mask: 1 });
        assert_eq!(part(sent, 9, 3), Sent { accepted: 1, refused: 2, refused_mask: 3 });
        assert_eq!(part(sent, 63, 1), Sent { accepted: 0, refused: 1, refused_mask: 1 });
    }
}
