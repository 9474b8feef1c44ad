"""Renders the recipe beside this file, as rattler-build does before it builds, and prints what it needs."""
from pathlib import Path

from rattler_build import Stage0Recipe, VariantConfig

here = Path(__file__).parent
variants = VariantConfig.from_file(here / "variants.yaml")
rendered = list(Stage0Recipe.from_file(here / "recipe.yaml").render(variants))
assert rendered, "the recipe makes no package"
for variant in rendered:
    recipe = variant.recipe
    print(f"{recipe.package.name} {recipe.package.version}: the recipe renders")
