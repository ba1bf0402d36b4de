import { expect, it } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import type { TeamRef } from '../sandboxes/contract.ts';
import type { Database } from './database.ts';
import type { TemplateBuildRow, TemplateRow } from './schema.ts';
import { type BuildContent, TemplateStore } from './template-store.ts';

const mine: TeamRef = { id: 'team-1', slug: 'mine' };
const theirs: TeamRef = { id: 'team-2', slug: 'theirs' };

const content: BuildContent = {
  cpuCount: 2,
  memoryMb: 1024,
  diskSizeMb: 10240,
  envdVersion: '0.6.13',
  layers: ['sha256-a', 'sha256-b'],
  startCmd: null,
  readyCmd: null,
  defaultUser: 'user',
  defaultWorkdir: null,
  env: { A: '1' },
  snapshotId: null,
};

function template(id: string, change: Partial<TemplateRow> = {}): TemplateRow {
  return {
    id,
    teamId: mine.id,
    public: false,
    createdAt: 1,
    updatedAt: 1,
    kind: 'template',
    createdBy: null,
    lastSpawnedAt: null,
    spawnCount: 0,
    buildCount: 0,
    ...change,
  };
}

function build(id: string, templateId: string, change: Partial<TemplateBuildRow> = {}): TemplateBuildRow {
  return {
    ...content,
    id,
    templateId,
    status: 'ready',
    reason: null,
    sourceSandboxId: null,
    createdAt: 1,
    updatedAt: 1,
    finishedAt: 1,
    ...change,
  };
}

describeOnBothStores('template store', (stores) => {
  async function open(): Promise<{ store: TemplateStore; db: Database }> {
    const db = await stores.open();
    for (const team of [mine, theirs])
      await db
        .insertInto('teams')
        .values({ ...team, name: team.slug, createdAt: 0 })
        .execute();
    return { store: new TemplateStore(db), db };
  }

  async function withTemplate(store: TemplateStore, row: TemplateRow, names: [string, string][], tags = ['default']) {
    await store.insert(row);
    for (const [namespace, alias] of names) expect(await store.addAlias(namespace, alias, row.id, 1)).toBe(true);
    for (const tag of tags) {
      await store.insertBuild(build(`${row.id}-${tag}`, row.id));
      await store.setTag({ templateId: row.id, tag, buildId: `${row.id}-${tag}`, createdAt: 1 });
    }
  }

  it('makes the built-in template once and a new build only when it changed', async () => {
    const { store } = await open();
    const first = await store.upsertBuiltin('base', content, 5);
    expect(first.template).toMatchObject({ teamId: null, public: true, buildCount: 1 });
    expect(first.build).toMatchObject({ ...content, status: 'ready' });
    const again = await store.upsertBuiltin('base', { ...content }, 6);
    expect(again.build.id).toBe(first.build.id);
    const changed = await store.upsertBuiltin('base', { ...content, layers: ['sha256-c'] }, 7);
    expect(changed.template.id).toBe(first.template.id);
    expect(changed.build.id).not.toBe(first.build.id);
    const resolved = await store.resolve('base', mine);
    expect(resolved.build.layers).toEqual(['sha256-c']);
    expect(resolved.template).toMatchObject({ buildCount: 2, updatedAt: 7 });
    expect(resolved.aliases).toEqual(['base']);
  });

  it('makes the built-in template once when many replicas start together', async () => {
    const { store, db } = await open();
    const made = await Promise.all(Array.from({ length: 8 }, () => store.upsertBuiltin('base', content, 5)));
    expect(new Set(made.map(({ template: { id } }) => id)).size).toBe(1);
    expect(new Set(made.map(({ build: { id } }) => id)).size).toBe(1);
    expect(await db.selectFrom('templates').selectAll().execute()).toHaveLength(1);
    expect(await db.selectFrom('templateBuilds').selectAll().execute()).toHaveLength(1);
  });

  it('looks a bare name up in the team, then globally, then as a template ID', async () => {
    const { store } = await open();
    await store.upsertBuiltin('base', content, 1);
    await withTemplate(store, template('mine1'), [['mine', 'base']]);
    await withTemplate(store, template('idlike'), []);
    expect((await store.resolve('base', mine)).template.id).toBe('mine1');
    expect((await store.resolve('BASE', mine)).template.id).toBe('mine1');
    expect((await store.resolve('base', theirs)).template.teamId).toBeNull();
    expect((await store.resolve('idlike', mine)).template.id).toBe('idlike');
    expect((await store.resolve('idlike:default', mine)).build.id).toBe('idlike-default');
  });

  it('follows tags, and says which part of a reference is missing', async () => {
    const { store } = await open();
    await withTemplate(store, template('t1'), [['mine', 'app']], ['default', 'v1']);
    expect((await store.resolve('app', mine)).build.id).toBe('t1-default');
    expect((await store.resolve('mine/app:v1', mine)).build.id).toBe('t1-v1');
    await store.setTag({ templateId: 't1', tag: 'v1', buildId: 't1-default', createdAt: 2 });
    expect((await store.resolve('app:v1', mine)).build.id).toBe('t1-default');
    await expect(store.resolve('app:v9', mine)).rejects.toMatchObject({
      kind: 'not_found',
      message: "tag 'v9' does not exist for template 'app'",
    });
    await expect(store.resolve('nope:v1', mine)).rejects.toMatchObject({
      kind: 'not_found',
      message: "template 'nope' not found",
    });
    await expect(store.resolve('a b', mine)).rejects.toMatchObject({ kind: 'invalid' });
    expect((await store.listTags('t1')).map(({ tag }) => tag)).toEqual(['v1', 'default']);
  });

  it("hides another team's private template and serves a public one by its namespace", async () => {
    const { store, db } = await open();
    await withTemplate(store, template('t1'), [['mine', 'app']]);
    for (const reference of ['mine/app', 't1', 'app'])
      await expect(store.resolve(reference, theirs)).rejects.toMatchObject({ kind: 'not_found' });
    await db.updateTable('templates').set({ public: 1 }).execute();
    expect((await store.resolve('mine/app', theirs)).template.id).toBe('t1');
    expect((await store.resolve('t1', theirs)).template.id).toBe('t1');
    await expect(store.resolve('app', theirs)).rejects.toMatchObject({ kind: 'not_found' });
    await expect(store.resolve('theirs/app', theirs)).rejects.toMatchObject({ kind: 'not_found' });
  });

  it('gives a name to one template only', async () => {
    const { store } = await open();
    await store.insert(template('t1'));
    await store.insert(template('t2'));
    expect(await store.addAlias('mine', 'app', 't1', 1)).toBe(true);
    expect(await store.addAlias('mine', 'app', 't2', 1)).toBe(false);
    expect((await store.find('app', mine))?.id).toBe('t1');
  });

  it("lists the team's templates and the built-in ones, newest first, in pages", async () => {
    const { store, db } = await open();
    await db.insertInto('users').values({ id: 'u1', email: 'u@x', createdAt: 0 }).execute();
    await store.upsertBuiltin('base', content, 1);
    await withTemplate(store, template('t1', { createdAt: 2, createdBy: 'u1' }), [
      ['mine', 'one'],
      ['mine', 'uno'],
    ]);
    await store.insert(template('t2', { createdAt: 3 }));
    await store.insertBuild(build('b2', 't2', { status: 'building', finishedAt: null }));
    await store.insert(template('hidden', { teamId: theirs.id, public: true }));
    const { items, next } = await store.list(mine.id, 100);
    expect(next).toBeNull();
    expect(
      items.map((item) => [item.template.id.length > 10 ? 'base' : item.template.id, item.names, item.aliases]),
    ).toEqual([
      ['t2', [], []],
      ['t1', ['mine/one', 'mine/uno'], ['one', 'uno']],
      ['base', ['base'], ['base']],
    ]);
    expect(items.map((item) => item.build?.status)).toEqual(['building', 'ready', 'ready']);
    expect(items[1]?.createdBy).toMatchObject({ id: 'u1', email: 'u@x' });
    const page = await store.list(mine.id, 2);
    expect(page.items).toHaveLength(2);
    const rest = await store.list(mine.id, 2, page.next);
    expect(rest).toMatchObject({ items: [{ aliases: ['base'] }], next: null });
  });

  it('counts sandboxes and pages builds', async () => {
    const { store } = await open();
    await withTemplate(store, template('t1'), []);
    await Promise.all([1, 2, 3].map((now) => store.bumpSpawnCount('t1', now)));
    expect(await store.get('t1')).toMatchObject({ spawnCount: 3, buildCount: 1 });
    await store.insertBuild(build('b2', 't1', { createdAt: 9, status: 'error', reason: { message: 'no', step: '1' } }));
    const page = await store.listBuilds('t1', 1);
    expect(page.items).toEqual([await store.getBuild('b2')]);
    expect(page.items[0]?.reason).toEqual({ message: 'no', step: '1' });
    expect((await store.listBuilds('t1', 1, page.next)).items.map(({ id }) => id)).toEqual(['t1-default']);
  });
});
