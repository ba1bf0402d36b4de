import { BuildFailure } from './build/failure.ts';

export class TemplateImages {
  async fromImage(image: string): Promise<never> {
    throw new BuildFailure(`image '${image}' cannot be fetched yet`, 'base');
  }
}
