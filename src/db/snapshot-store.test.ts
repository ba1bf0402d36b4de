import { expect, it } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import { rowOf } from '../../tests/support/rows.ts';
import type { Database } from './database.ts';
import { SandboxStore } from './sandbox-store.ts';
import { SnapshotStore } from './snapshot-store.ts';
import { parseTemplateReference } from './template-reference.ts';
import { type BuildContent, TemplateStore } from './template-store.ts';

const team = { id: 'team', slug: 'mine' };

const content = (snapshotId: string): BuildContent => ({
  cpuCount: 2,
  memoryMb: 1024,
  diskSizeMb: 10240,
  envdVersion: '0.6.13',
  layers: ['base'],
  startCmd: null,
  readyCmd: null,
  defaultUser: 'user',
  defaultWorkdir: null,
  env: {},
  snapshotId,
});

describeOnBothStores('snapshot store', (stores) => {
  async function open(): Promise<{ db: Database; store: SnapshotStore; templates: TemplateStore }> {
    const db = await stores.open();
    await db
      .insertInto('teams')
      .values({ ...team, name: 'Mine', createdAt: 0 })
      .execute();
    return { db, store: new SnapshotStore(db), templates: new TemplateStore(db) };
  }

  const take = (store: SnapshotStore, image: string, name: string | undefined, now: number, sandbox = 'source') =>
    store.insert({
      team,
      name: name === undefined ? undefined : parseTemplateReference(name),
      sourceSandboxId: sandbox,
      content: content(image),
      now,
    });
  const all = { sandboxId: null, templateId: null, tag: null, limit: 100, cursor: null };

  it('makes a template of its own for one without a name, which sandboxes can be made from and lists do not show', async () => {
    const { store, templates } = await open();
    const { templateId, tag, names } = await take(store, 'one', undefined, 1);
    expect([tag, names]).toEqual(['default', []]);
    const { build } = await templates.resolve(`${templateId}:default`, team);
    expect(build).toMatchObject({ snapshotId: 'one', sourceSandboxId: 'source', status: 'ready' });
    expect((await templates.list(team.id, 10)).items).toEqual([]);
  });

  it('adds to the template of a name that the team has, and moves the tag', async () => {
    const { store, templates } = await open();
    const first = await take(store, 'one', 'work', 1);
    const second = await take(store, 'two', 'mine/work', 2);
    const third = await take(store, 'three', 'work:v2', 3);
    expect(first.names).toEqual(['mine/work']);
    expect([second.templateId, third.templateId]).toEqual([first.templateId, first.templateId]);
    expect((await templates.resolve('work', team)).build.snapshotId).toBe('two');
    expect((await templates.resolve('work:v2', team)).build.snapshotId).toBe('three');
    // Nothing points at the first any more.
    expect(await store.forgetUntagged()).toEqual(['one']);
    expect(await store.forgetUntagged()).toEqual([]);
    expect(await store.imagesInUse()).toEqual(new Set(['two', 'three']));
  });

  it('keeps what an untagged snapshot was while a sandbox made from it exists', async () => {
    const { db, store, templates } = await open();
    await take(store, 'one', 'work', 1);
    const { build, template } = await templates.resolve('work', team);
    await new SandboxStore(db).insert(rowOf({ teamId: team.id, buildId: build.id, templateId: template.id }));
    await take(store, 'two', 'work', 2);
    expect(await store.forgetUntagged()).toEqual(['one']);
    expect(await templates.getBuild(build.id)).toMatchObject({ snapshotId: null });
  });

  it('lists newest first, by source, by name, by tag, page by page', async () => {
    const { store } = await open();
    const { templateId } = await take(store, 'a', 'work', 1, 'first');
    await take(store, 'b', 'work:v2', 2, 'second');
    const unnamed = await take(store, 'c', undefined, 3, 'second');
    const list = async (query: object = {}) =>
      (await store.list(team.id, { ...all, ...query })).items.map((item) => `${item.templateId}:${item.tag}`);
    const [newest, middle, oldest] = [`${unnamed.templateId}:default`, `${templateId}:v2`, `${templateId}:default`];
    expect(await list()).toEqual([newest, middle, oldest]);
    expect(await list({ sandboxId: 'second' })).toEqual([newest, middle]);
    expect(await list({ templateId })).toEqual([middle, oldest]);
    expect(await list({ templateId, tag: 'v2' })).toEqual([middle]);
    const first = await store.list(team.id, { ...all, limit: 2 });
    expect(first.items).toHaveLength(2);
    expect(await list({ limit: 2, cursor: first.next })).toEqual([oldest]);
    expect((await store.list('others', all)).items).toEqual([]);
  });

  it('deletes a template whole, and not while sandboxes made from it exist', async () => {
    const { db, store, templates } = await open();
    await take(store, 'one', 'work', 1);
    await take(store, 'two', 'work:v2', 2);
    const { template, build } = await templates.resolve('work', team);
    const sandboxes = new SandboxStore(db);
    const row = rowOf({ teamId: team.id, buildId: build.id, templateId: template.id });
    await sandboxes.insert(row);
    expect(await store.deleteTemplate(template.id)).toEqual({ sandboxes: 1 });
    await sandboxes.delete(row.id);
    const result = await store.deleteTemplate(template.id);
    expect('images' in result && result.images.sort()).toEqual(['one', 'two']);
    expect(await templates.find('work', team)).toBeUndefined();
    expect(await store.imagesInUse()).toEqual(new Set());
  });
});
