import { describe, expect, it } from 'vitest';
import { parseImageReference } from './image-reference.ts';

describe('image references', () => {
  it.each([
    ['ubuntu', 'docker.io/library/ubuntu:latest', 'docker.io', false],
    ['ubuntu:22.04', 'docker.io/library/ubuntu:22.04', 'docker.io', false],
    ['oven/bun:latest', 'docker.io/oven/bun:latest', 'docker.io', false],
    ['docker.io/ubuntu', 'docker.io/library/ubuntu:latest', 'docker.io', false],
    ['ghcr.io/a/b/c:v1.2', 'ghcr.io/a/b/c:v1.2', 'ghcr.io', false],
    ['localhost:5000/x', 'localhost:5000/x:latest', 'localhost:5000', true],
    ['127.0.0.1:5000/x/y:t', '127.0.0.1:5000/x/y:t', '127.0.0.1:5000', true],
    ['192.168.1.5/x', '192.168.1.5/x:latest', '192.168.1.5', true],
    ['172.32.0.1/x', '172.32.0.1/x:latest', '172.32.0.1', false],
    [`a/b:tag@sha256:${'a'.repeat(64)}`, `docker.io/a/b@sha256:${'a'.repeat(64)}`, 'docker.io', false],
  ])('%s', (image, text, registry, isLocal) => {
    expect(parseImageReference(image)).toEqual({ text, registry, isLocal });
  });

  it.each([
    '',
    ' ',
    'Ubuntu',
    'a b',
    '-x',
    '--help/x',
    'x:',
    'x:a b',
    'x@sha256:12',
    'a//b',
    'x;y',
    '$(id)',
    'file:///etc',
  ])('refuses %j', (image) => {
    expect(() => parseImageReference(image)).toThrow('is not the name of an image');
  });
});
