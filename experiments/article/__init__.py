"""How rows are shown and published. What a notebook needs of it: `begin`."""

from experiments.article.chapter import begin as begin
