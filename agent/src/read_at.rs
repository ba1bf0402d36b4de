//! READ_AT: from the file to the socket, through the kernel where it can.

use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::context::Context;
use crate::errors::{Error, Outcome};
use crate::fields::{field, Message};
use crate::frame;
use crate::handles::Handle;
use crate::sys::{self, Errno};
use crate::workers::{Reply, Step, Task};

/// A frame of data that was read by hand.
const PIECE: usize = 128 << 10;

pub struct ReadAt {
    handle: Arc<Handle>,
    socket: Arc<OwnedFd>,
    offset: i64,
    /// bytes that the client still wants
    left: usize,
    way: Way,
}

enum Way {
    /// One frame, its data sent by sendfile. `header` is what is left of the header.
    Sendfile { header: Vec<u8>, announced: usize },
    /// Frames read into memory, for files that do not know their length (/proc) or cannot be sent.
    ByHand,
}

impl ReadAt {
    pub fn begin(context: &Context, request: &Message, socket: Arc<OwnedFd>) -> Outcome<ReadAt> {
        let handle = context.handles.get(request.number(field::HANDLE))?;
        let left = request.number(field::LENGTH);
        if left > frame::MAX_PAYLOAD as u64 {
            return Err(Error::invalid("at most 4 MiB can be read at once"));
        }
        let left = left as usize;
        let offset = i64::try_from(request.number(field::OFFSET));
        let offset = offset.map_err(|_| Error::invalid("offset out of range"))?;
        let found = sys::fstat(handle.file.as_raw_fd())?;
        let way = if sys::is_kind(found.st_mode, libc::S_IFREG) && found.st_size > 0 {
            let announced = left.min(usize::try_from(found.st_size.saturating_sub(offset)).unwrap_or(0));
            Way::Sendfile { header: frame::header(frame::OK, announced).to_vec(), announced }
        } else {
            Way::ByHand
        };
        Ok(ReadAt { handle, socket, offset, left, way })
    }

    fn send_file(&mut self) -> Step {
        let socket = self.socket.as_raw_fd();
        if let Way::Sendfile { header, announced } = &mut self.way {
            while !header.is_empty() {
                let flags = if *announced > 0 { libc::MSG_MORE } else { 0 };
                match sys::send(socket, header, flags) {
                    Ok(count) => drop(header.drain(..count)),
                    Err(libc::EAGAIN) => return Step::WaitWritable,
                    Err(_) => return Step::Done(Reply::Broken),
                }
            }
            while *announced > 0 {
                let file = self.handle.file.as_raw_fd();
                let step = (*announced).min(1 << 20);
                // SAFETY: the offset is ours and valid for the call.
                let sent = unsafe { libc::sendfile(socket, file, &mut self.offset, step) };
                match sys::check_size(sent) {
                    // The file was cut while we read it: the frame cannot be kept as announced.
                    Ok(0) => return Step::Done(Reply::Broken),
                    Ok(count) => *announced -= count,
                    Err(libc::EAGAIN) => return Step::WaitWritable,
                    Err(libc::EINTR) => (),
                    Err(libc::EINVAL | libc::ENOSYS) => return self.send_copied(),
                    Err(_) => return Step::Done(Reply::Broken),
                }
            }
        }
        Step::Done(Reply::Sent)
    }

    /// The announced frame for files that sendfile does not take.
    fn send_copied(&mut self) -> Step {
        if let Way::Sendfile { announced, .. } = &mut self.way {
            let step = (*announced).min(PIECE);
            return match read_piece(&self.handle, self.offset, step) {
                Ok(piece) if !piece.is_empty() => {
                    *announced -= piece.len();
                    self.offset += piece.len() as i64;
                    if *announced == 0 {
                        Step::Done(Reply::Frame(piece))
                    } else {
                        Step::Frame(piece)
                    }
                }
                _ => Step::Done(Reply::Broken),
            };
        }
        Step::Done(Reply::Broken)
    }

    fn send_by_hand(&mut self) -> Step {
        match read_piece(&self.handle, self.offset, self.left.min(PIECE)) {
            Err(errno) => {
                let error = Error::from(errno).at(&self.handle.path);
                Step::Done(Reply::Frame(frame::error(&error)))
            }
            Ok(piece) => {
                self.offset += piece.len() as i64;
                self.left -= piece.len();
                let is_last = piece.is_empty() || self.left == 0;
                let kind = if is_last { frame::OK } else { frame::MORE };
                let mut response = frame::header(kind, piece.len()).to_vec();
                response.extend_from_slice(&piece);
                if is_last {
                    Step::Done(Reply::Frame(response))
                } else {
                    Step::Frame(response)
                }
            }
        }
    }
}

impl Task for ReadAt {
    fn step(&mut self, _: &Context) -> Step {
        match self.way {
            Way::Sendfile { .. } => self.send_file(),
            Way::ByHand => self.send_by_hand(),
        }
    }
}

fn read_piece(handle: &Handle, offset: i64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut piece = vec![0; length];
    let file = handle.file.as_raw_fd();
    // SAFETY: the buffer is valid for writes of its whole length.
    let result =
        sys::retry(|| sys::check_size(unsafe { libc::pread(file, piece.as_mut_ptr().cast(), piece.len(), offset) }));
    let count = match result {
        // Terminals and the like have no offsets.
        Err(libc::ESPIPE) => sys::read(file, &mut piece)?,
        other => other?,
    };
    piece.truncate(count);
    Ok(piece)
}
