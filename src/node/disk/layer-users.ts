import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { Image } from '../images.ts';
import type { Layout } from '../layout.ts';
import { Records } from '../record.ts';

/** Layers that sandboxes and snapshots of a state directory stand on, by what is written down of them: also beside a running service. */
export async function layersInUse(layout: Layout): Promise<Set<string>> {
  const records = await new Records(layout).all();
  const used = [...records.values()].flatMap((record) => record?.layers ?? []);
  const places = [...records.keys()].map((id) => path.join(layout.sandboxDir(id), 'image'));
  for (const name of await readdir(layout.snapshotsDir).catch(() => []))
    places.push(path.join(layout.snapshotsDir, name));
  for (const place of places) {
    const image = new Image(place);
    if (image.exists) used.push(...(await image.info()).layers);
  }
  return new Set(used);
}
