"""The families that see: networks that classify pictures, write captions and answer questions about them."""
