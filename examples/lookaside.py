#!/usr/bin/env python3
"""A cache in front of a database, the look-aside way, in one file.

    pip install pymemcache
    python3 examples/lookaside.py [--server HOST:PORT] [--products N] [--reads N]

A shop shows product pages. Each page needs what visitors wrote about the product, and how it ranks
within its category: queries over many reviews in SQLite. Instead of asking the database each time,
the shop looks aside first:

    read     look in the cache; on a miss ask the database and leave the answer in the cache
    change   write the database, then delete the key, so that the next read fetches what is true now

The program builds the database, serves the same visits without and with the cache, changes prices
all along, checks every page against the database, and says what the cache was worth. It runs
against any memcached-compatible server and leaves nothing behind.
"""

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import time

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

REVIEWS_PER_PRODUCT = 40
PRODUCTS_PER_CATEGORY = 50
PAGE_TTL_S = 300
WRITE_EVERY = 50  # one visit in so many is the shopkeeper changing a price


def make_database(path, products):
    """A table of products and one of their reviews."""
    rng = random.Random(1)
    db = sqlite3.connect(path)
    db.executescript(
        """
        CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL, category INTEGER NOT NULL, cents INTEGER NOT NULL);
        CREATE TABLE review (product INTEGER NOT NULL, stars INTEGER NOT NULL, text TEXT NOT NULL);
        """
    )
    with db:
        db.executemany(
            "INSERT INTO product VALUES (?, ?, ?, ?)",
            ((n, f"Product {n}", n // PRODUCTS_PER_CATEGORY, rng.randrange(100, 100_000)) for n in range(products)),
        )
        db.executemany(
            "INSERT INTO review VALUES (?, ?, ?)",
            (
                (rng.randrange(products), rng.randrange(1, 6), f"Review {n}: " + "well " * rng.randrange(1, 20))
                for n in range(products * REVIEWS_PER_PRODUCT)
            ),
        )
        db.execute("CREATE INDEX review_of ON review (product, stars)")
        db.execute("CREATE INDEX product_in ON product (category)")
    return db


class Shop:
    """Product pages, with or without a cache aside."""

    def __init__(self, db, cache=None):
        self.db = db
        self.cache = cache
        self.hits = self.misses = self.queries = 0

    def page(self, product):
        """What the visitor sees."""
        key = f"shop:page:{product}"
        if self.cache is not None:
            cached = self.cache.get(key)
            if cached is not None:
                self.hits += 1
                return json.loads(cached)
            self.misses += 1
        page = self.page_from_database(product)
        if self.cache is not None:
            self.cache.set(key, json.dumps(page).encode(), expire=PAGE_TTL_S)
        return page

    def page_from_database(self, product):
        self.queries += 1
        name, category, cents = self.db.execute(
            "SELECT name, category, cents FROM product WHERE id = ?", (product,)
        ).fetchone()
        ranking = self.db.execute(
            """
            SELECT product.id, count(*), avg(stars) AS mean FROM product JOIN review ON review.product = product.id
            WHERE category = ? GROUP BY product.id ORDER BY mean DESC, product.id
            """,
            (category,),
        ).fetchall()
        rank, count, stars = next(
            ((n + 1, count, stars) for n, (other, count, stars) in enumerate(ranking) if other == product), (None, 0, None)
        )
        best = self.db.execute(
            "SELECT stars, text FROM review WHERE product = ? ORDER BY stars DESC, length(text) DESC LIMIT 5", (product,)
        ).fetchall()
        return {
            "name": name,
            "cents": cents,
            "stars": stars,
            "reviews": count,
            "rank": rank,
            "best": [list(row) for row in best],
        }

    def change_price(self, product, cents):
        """The database first, then the cache: the other way round, a reader in between could put the old page back."""
        with self.db:
            self.db.execute("UPDATE product SET cents = ? WHERE id = ?", (cents, product))
        if self.cache is not None:
            self.cache.delete(f"shop:page:{product}", noreply=False)


def visits(products, reads):
    """Which products are looked at: few often, most seldom. None stands for a change of price."""
    rng = random.Random(2)
    ranks = list(range(products))
    rng.shuffle(ranks)
    weights = [1 / (rank + 1) for rank in range(products)]
    for n, product in enumerate(rng.choices(ranks, weights, k=reads)):
        yield product, (rng.randrange(100, 100_000) if n % WRITE_EVERY == 0 else None)


def serve(shop, plan):
    """Plays the visits. Returns seconds spent, and how many pages were stale."""
    spent, stale = 0.0, 0
    for product, new_price in plan:
        started = time.perf_counter()
        if new_price is not None:
            shop.change_price(product, new_price)
        page = shop.page(product)
        spent += time.perf_counter() - started
        if new_price is not None and page["cents"] != new_price:
            stale += 1
    return spent, stale


def parse_server(text):
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT")
    return host, int(port)


def main():
    parser = argparse.ArgumentParser(description="A look-aside cache in front of SQLite.")
    parser.add_argument("--server", type=parse_server, default=("127.0.0.1", 11211), metavar="HOST:PORT")
    parser.add_argument("--products", type=int, default=2000)
    parser.add_argument("--reads", type=int, default=10_000)
    options = parser.parse_args()

    cache = Client(options.server, timeout=10, connect_timeout=5, no_delay=True, key_prefix=b"lookaside:%d:" % os.getpid())
    try:
        version = cache.version().decode()
    except (OSError, MemcacheError) as error:
        print(f"no cache at {options.server[0]}:{options.server[1]}: {error}", file=sys.stderr)
        return 2

    with tempfile.TemporaryDirectory() as directory:
        reviews = options.products * REVIEWS_PER_PRODUCT
        print(f"database   SQLite, {options.products} products, {reviews} reviews")
        db = make_database(os.path.join(directory, "shop.db"), options.products)
        print(f"cache      {options.server[0]}:{options.server[1]}, version {version}")
        print(f"visits     {options.reads}, one in {WRITE_EVERY} after a change of price\n")
        plan = list(visits(options.products, options.reads))

        bare = Shop(db)
        bare_s, _ = serve(bare, plan)
        aside = Shop(db, cache)
        aside_s, stale = serve(aside, plan)
        hits, misses = aside.hits, aside.misses
        wrong = sum(aside.page(product) != aside.page_from_database(product) for product in range(options.products))

        print(f"{'':10} {'queries':>8} {'hit ratio':>10} {'us/visit':>9}")
        print(f"{'no cache':10} {bare.queries:8} {'':>10} {bare_s / len(plan) * 1e6:9.0f}")
        print(f"{'cache':10} {misses:8} {hits / (hits + misses):10.1%} {aside_s / len(plan) * 1e6:9.0f}\n")
        print(f"stale pages after a change: {stale}; pages that differ from the database: {wrong}")
        cache.delete_many([f"shop:page:{product}" for product in range(options.products)])
        cache.close()
        db.close()
    return 1 if stale or wrong or not hits else 0


if __name__ == "__main__":
    sys.exit(main())
