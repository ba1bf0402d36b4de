/** A message of a Connect stream: one byte flags, four bytes length, JSON. */
export function frame(message: unknown, flags = 0): Buffer {
  const payload = Buffer.from(JSON.stringify(message));
  const header = Buffer.alloc(5);
  header[0] = flags;
  header.writeUInt32BE(payload.length, 1);
  return Buffer.concat([header, payload]);
}

export interface Frame {
  flags: number;
  message: Record<string, unknown>;
}

/** The frames of a stream as they arrive. */
export async function* frames(body: AsyncIterable<Uint8Array>): AsyncGenerator<Frame> {
  let held: Buffer = Buffer.alloc(0);
  for await (const chunk of body) {
    held = Buffer.concat([held, chunk]);
    while (held.length >= 5 && held.length >= 5 + held.readUInt32BE(1)) {
      const end = 5 + held.readUInt32BE(1);
      yield { flags: held[0] ?? 0, message: JSON.parse(held.subarray(5, end).toString()) };
      held = held.subarray(end);
    }
  }
}

/** Every frame of a whole stream. */
export async function allFrames(response: Response): Promise<Frame[]> {
  if (!response.body) throw new Error('the response has no body');
  return await Array.fromAsync(frames(response.body));
}
