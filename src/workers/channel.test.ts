import { expect, test } from 'vitest';
import { SandbarError } from '../core/errors.ts';
import { Channel } from './channel.ts';

type Shop = {
  price(item: string, count: number): Promise<number>;
  note(text: string): void;
  fail(): never;
};

/** Two ends of a wire that carries what JSON carries. */
function joined(shop: Shop) {
  const customer: Channel<Shop> = new Channel((message) => server.receive(JSON.parse(JSON.stringify(message))), {});
  const server = new Channel((message) => customer.receive(JSON.parse(JSON.stringify(message))), shop);
  return { customer, server };
}

const shop: Shop = {
  price: async (item, count) => item.length * count,
  note: () => undefined,
  fail: () => {
    throw new SandbarError('conflict', 'not today');
  },
};

test('a call is answered, many at once each with its own', async () => {
  const { customer } = joined(shop);
  const prices = await Promise.all([customer.call('price', 'tea', 2), customer.call('price', 'coffee', 3)]);
  expect(prices).toEqual([6, 18]);
});

test('what is told is heard in order and not answered', async () => {
  const heard: string[] = [];
  const { customer } = joined({ ...shop, note: (text) => heard.push(text) });
  for (const text of ['one', 'two', 'three']) customer.tell('note', text);
  await customer.call('price', 'tea', 1);
  expect(heard).toEqual(['one', 'two', 'three']);
});

test('a failure keeps its kind and message', async () => {
  const { customer } = joined(shop);
  await expect(customer.call('fail')).rejects.toMatchObject({ kind: 'conflict', message: 'not today' });
});

test('a call of something that is not there fails', async () => {
  const { customer } = joined({} as Shop);
  await expect(customer.call('price', 'tea', 1)).rejects.toMatchObject({ kind: 'unimplemented' });
});

test('a channel that is closed fails what waits and what comes', async () => {
  const { customer } = joined({ ...shop, price: () => new Promise(() => undefined) });
  const waiting = customer.call('price', 'tea', 1);
  customer.close('it has ended');
  await expect(waiting).rejects.toThrow('it has ended');
  await expect(customer.call('price', 'tea', 1)).rejects.toThrow('it has ended');
});
